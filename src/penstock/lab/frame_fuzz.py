"""Truncated and garbage frames: each must be refused with a reason, and the reader must go on.

Frames are damaged so that no correct decoder can accept them: cut inside their last value, given a
payload that begins with an impossible byte, an unknown schema id, or no frame at all. Between them
are good frames, which must be read.
"""

import random
from collections import Counter
from typing import Any, Final

from penstock.client.consumer import Consumer
from penstock.client.producer import Producer
from penstock.lab.lab_result import LabPlot, LabResult
from penstock.lab.lab_run import LabRun
from penstock.lab.order_events import order_events
from penstock.lab.order_schemas import V1, contract_of
from penstock.schemas.model import SchemaType
from penstock.serde.batch_serializers import BatchDeserializer, BatchSerializer
from penstock.serde.frame import PREFIX_BYTES

_QUESTION: Final = "Is every damaged frame refused, whatever the damage, without a crash?"
_CHUNK: Final = 20_000
_GOOD_EVERY: Final = 100
_UNKNOWN_ID: Final = 0x7F000000
_UNKNOWN_IDS: Final = 50  # each is one request to the registry
# What no payload can begin with: a negative length, field number 0, a byte that is not UTF-8.
_IMPOSSIBLE: Final = {
    SchemaType.AVRO: b"\x01",
    SchemaType.PROTOBUF: b"\x00\x00",  # after the message index: a tag with number 0
    SchemaType.JSON: b"\xff",
}
_DAMAGES: Final = ("cut", "garbage payload", "unknown schema", "no frame", "cut prefix")


def run_fuzz(lab: LabRun) -> LabResult:
    """Damage frames of every language, and read them."""
    total = lab.sized(quick=30_000, default=1_050_000)
    live = lab.sized(quick=300, default=5_000)
    result = lab.result(_QUESTION, frames=total, frames_through_the_broker=live)
    per_language = total // len(SchemaType)
    reasons: Counter[str] = Counter()
    refused = read = damaged = good = 0
    chunks = [(language, at) for language in SchemaType for at in range(0, per_language, _CHUNK)]
    with lab.platform.registry() as registry:
        for language, at in lab.steps("frames", chunks):
            contract = contract_of(V1, language)
            frames = _frames(registry, language)
            rng = random.Random(f"{lab.seed}:{language}:{at}")
            count = min(_CHUNK, per_language - at)
            values = [_value(rng, frames, language, number) for number in range(count)]
            deserializer = BatchDeserializer(registry, f"fuzz-{language}", reader=contract)
            _, errors = deserializer.deserialize_many(values)
            reasons.update(str(error.reason) for error in errors)
            rows = {error.row for error in errors}
            own_good = set(range(0, count, _GOOD_EVERY))
            good, damaged = good + len(own_good), damaged + count - len(own_good)
            refused += len(rows - own_good)
            read += len(own_good - rows)
        _through_broker(lab, result, live)
    result.claim(
        "every damaged frame is refused", f"{refused:,} of {damaged:,}", refused == damaged
    )
    result.claim("every good frame among them is read", f"{read:,} of {good:,}", read == good)
    result.table("Why frames were refused", ("reason", "frames"), reasons.most_common())
    result.plots.append(
        LabPlot("Refused frames", "frames", {name: [(0, n)] for name, n in reasons.most_common()})
    )
    result.numbers |= {"damaged": damaged, "refused": refused, "good": good, "read": read}
    return result


def _frames(registry: Any, language: SchemaType) -> list[bytes]:
    serializer = BatchSerializer(registry, f"fuzz-{language}", contract_of(V1, language))
    return serializer.serialize_many(list(order_events(V1, 7, 50))).contents()


def _value(rng: random.Random, frames: list[bytes], language: SchemaType, number: int) -> bytes:
    frame = rng.choice(frames)
    if number % _GOOD_EVERY == 0:
        return frame
    match rng.choice(_DAMAGES):
        case "cut":  # inside the last line item, or inside its digits and brackets
            return frame[: -rng.randrange(1, 10)]
        case "garbage payload":
            noise = rng.randbytes(rng.randrange(1, 200))
            return frame[:PREFIX_BYTES] + _IMPOSSIBLE[language] + noise
        case "unknown schema":
            unknown = _UNKNOWN_ID + rng.randrange(_UNKNOWN_IDS)
            return b"\x00" + unknown.to_bytes(4, "big") + frame[PREFIX_BYTES:]
        case "cut prefix":
            return frame[: rng.randrange(PREFIX_BYTES)]
        case _:
            return bytes([rng.randrange(2, 256)]) + rng.randbytes(rng.randrange(300))


def _through_broker(lab: LabRun, result: LabResult, count: int) -> None:
    """The same damage in a topic: the consumer goes on, and quarantine has every damaged frame."""
    topic = lab.platform.make_topic("fuzz", 2)
    rng = random.Random(lab.seed)
    with lab.platform.registry() as registry:
        language = SchemaType.AVRO
        frames = _frames(registry, language)
        values = [_value(rng, frames, language, number) for number in range(count)]
        good = len(range(0, count, _GOOD_EVERY))
        with Producer(lab.platform.bootstrap, topic) as producer:
            producer.send_many(values).wait(60)
        contract = contract_of(V1, language)
        consumer = Consumer(lab.platform.bootstrap, topic, topic, registry=registry, value=contract)
        with consumer:
            read = sum(len(batch) for batch in consumer.arrow_batches(["order_id"], idle_s=3))
            quarantined = consumer.quarantined
    measured = f"{quarantined:,} of {count - good:,} quarantined, {read:,} of {good:,} read"
    holds = (quarantined, read) == (count - good, good)
    result.claim("a consumer quarantines them and goes on", measured, holds)
