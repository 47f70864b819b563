"""One record per language, byte by byte: magic, schema id, message indexes, payload."""

from typing import Final

from penstock.client.consumer import Consumer
from penstock.client.producer import Producer
from penstock.lab.lab_result import LabResult
from penstock.lab.lab_run import LabRun
from penstock.lab.order_events import order_event
from penstock.lab.order_schemas import V1, contract_of
from penstock.schemas.model import SchemaType
from penstock.serde.annotate import annotate, hexdump
from penstock.serde.frame import PREFIX_BYTES
from penstock.serde.serializers import Deserializer

_QUESTION: Final = "What exactly is in a record?"
_WAIT_S: Final = 30.0


def run_wire(lab: LabRun) -> LabResult:
    """Write an order in each language, and read its bytes back from the log."""
    result = lab.result(_QUESTION, version="v1")
    rows = []
    for language in lab.steps("languages", list(SchemaType)):
        topic = lab.platform.make_topic(f"wire-{language}".lower(), 1)
        contract = contract_of(V1, language)
        event = order_event(V1, lab.seed, 1)
        with lab.platform.registry() as registry:
            producer = Producer(lab.platform.bootstrap, topic, registry=registry, value=contract)
            with producer:
                producer.send(event).result(_WAIT_S)
            with Consumer(lab.platform.bootstrap, topic, topic) as consumer:
                (record,) = consumer.take(wait_s=_WAIT_S)
            content: bytes = record.value
            known = registry.latest(f"{topic}-value").id
            parts = annotate(content, (), schema_type=language)
            reader = Deserializer(registry, topic, reader=contract, as_dicts=True)
            read = reader.deserialize(content)
        own_id = int.from_bytes(content[1:PREFIX_BYTES], "big")
        result.claim(
            f"{language}: magic 0, then the registered id, then a payload that reads as it was",
            f"magic {content[0]}, id {own_id}, {len(content)} bytes",
            content[0] == 0 and own_id == known and read["order_id"] == event["order_id"],
        )
        payload = len(parts[-1].content)
        rows.append((language, len(content), len(content) - payload, payload))
        dump = "\n".join(hexdump(parts))
        result.notes.append(f"## {language}\n\n```text\n{dump}\n```")
        result.numbers[f"{language} bytes"] = len(content)
    indexed = [note.split()[1] for note in result.notes if "message indexes" in note]
    result.claim("only Protobuf has message indexes", ", ".join(indexed), indexed == ["PROTOBUF"])
    result.table("Sizes", ("language", "bytes", "frame", "payload"), rows)
    return result
