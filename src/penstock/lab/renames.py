"""Renaming a field: which ways are safe for old and for new readers."""

from dataclasses import replace
from typing import Final

from penstock.client.registry import Registry
from penstock.lab.lab_result import LabResult
from penstock.lab.lab_run import LabRun
from penstock.lab.order_events import order_event
from penstock.lab.order_schemas import V1, OrderShape, contract_of
from penstock.schemas.model import SchemaType
from penstock.serde.errors import DecodeError
from penstock.serde.serializers import Deserializer, Serializer

_QUESTION: Final = "Which rename of a field is safe in both directions?"
_OLD, _NEW = "email", "contact"
_RENAMED: Final = V1.changed(_OLD, name=_NEW)
_ALIASED: Final = V1.changed(_OLD, name=_NEW, aliases=(_OLD,))
_PREPARED: Final = V1.changed(_OLD, aliases=(_NEW,))  # the old name, ready for the new one


def _both_names() -> OrderShape:
    email = next(field for field in V1.fields if field.name == _OLD)
    return V1.with_field(replace(email, name=_NEW, number=14, default=""))


# Way, language, the old and the new schema, and whether old and new readers get the value.
_WAYS: Final = (
    ("without an alias", SchemaType.AVRO, V1, _RENAMED, (False, False)),
    ("alias in the new schema", SchemaType.AVRO, V1, _ALIASED, (True, False)),
    ("aliases in both, readers prepared first", SchemaType.AVRO, _PREPARED, _ALIASED, (True, True)),
    ("both names written for a while", SchemaType.AVRO, V1, _both_names(), (True, True)),
    ("Protobuf: the number stays", SchemaType.PROTOBUF, V1, _RENAMED, (True, True)),
)


def run_aliases(lab: LabRun) -> LabResult:
    """Try every way in both directions."""
    result = lab.result(_QUESTION, field=f"{_OLD} to {_NEW}")
    rows = []
    with lab.platform.registry() as registry:
        for way, language, old, new, expected in lab.steps("ways", _WAYS):
            topic = f"aliases-{way}".replace(" ", "-").replace(",", "").replace(":", "")
            registry.api.set_config(f"{topic}-value", {"compatibility": "NONE"})
            forth = _read(registry, topic, language, old, new, lab.seed)
            back = _read(registry, topic, language, new, old, lab.seed)
            rows.append((way, forth, back))
            safe = (forth == "reads", back == "reads")
            words = {True: "safe", False: "not safe"}
            result.claim(
                f"{way}: {words[expected[0]]} for new readers, {words[expected[1]]} for old ones",
                f"new reads old: {forth}; old reads new: {back}", safe == expected,
            )  # fmt: skip
            result.numbers[way] = {"new reads old": forth, "old reads new": back}
    result.table("Ways to rename", ("way", "new reads old", "old reads new"), rows)
    return result


def _read(
    registry: Registry,
    topic: str,
    language: SchemaType,
    writes: OrderShape,
    reads: OrderShape,
    seed: int,
) -> str:
    event = order_event(writes, seed, 3)
    address = event.get(_OLD, event.get(_NEW))
    content = Serializer(registry, topic, contract_of(writes, language)).serialize(event).content
    reader = contract_of(reads, language, auto_register=False)
    try:
        read = Deserializer(registry, topic, reader=reader, as_dicts=True).deserialize(content)
    except DecodeError as error:
        return " ".join(str(error.detail).split())[:80]
    found = read.get(_NEW) or read.get(_OLD)
    return "reads" if found == address else "the value is lost"
