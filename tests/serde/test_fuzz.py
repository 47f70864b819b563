"""Mutated frames: whatever the bytes, an event or a reason, and never anything else."""

import json
import random
from collections import Counter
from collections.abc import Iterator
from uuid import UUID

import pytest

from penstock.client.registry import Registry
from penstock.schemas.model import SchemaText, SchemaType
from penstock.serde.batch_serializers import BatchDeserializer
from penstock.serde.contract import Contract
from penstock.serde.errors import DecodeError, Reason
from penstock.serde.frame import SchemaId
from penstock.serde.schema_source import KnownSchema, Registration
from penstock.serde.serializers import Deserializer, Serializer

AVRO = {
    "type": "record",
    "name": "Everything",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "nothings", "type": {"type": "array", "items": "null"}},
        {"name": "sizes", "type": {"type": "map", "values": "double"}},
        {"name": "next", "type": ["null", "Everything"]},
        {"name": "state", "type": {"type": "enum", "name": "S", "symbols": ["A", "B"]}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
    ],
}
EVENT = {
    "id": 7, "tags": ["a", "b"], "nothings": [None], "sizes": {"x": 1.0}, "next": None,
    "state": "B", "day": 3, "at": 1000, "price": b"\x01",
}  # fmt: skip
PROTO = """syntax = "proto3"; message M { string a = 1; repeated int64 b = 2; map<string, M> c = 3;
  oneof o { double d = 4; M e = 5; } }"""
MESSAGE = {"a": "text", "b": [1, 2, 300], "c": {"k": {"a": "inner"}}, "e": {"d": 1.5}}
JSON = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


class StoredSchemas(Registry):
    """Three schemas and no network."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1", attempts=1)
        sources = [
            SchemaText(SchemaType.AVRO, json.dumps(AVRO)),
            SchemaText(SchemaType.PROTOBUF, PROTO),
            SchemaText(SchemaType.JSON, json.dumps(JSON)),
        ]
        parsed = [self.parse(source) for source in sources]
        guid = UUID(int=1)
        for number, (source, schema) in enumerate(zip(sources, parsed, strict=True)):
            known = KnownSchema(SchemaId(number), guid, source, {}, schema)
            self._schemas.put(SchemaId(number), known)
            self._latest.put(f"t{number}-value", known)
            for register in (True, False):
                key = (f"t{number}-value", source, False, register)
                self._ids.put(key, Registration(SchemaId(number), guid))


def frames(registry: Registry) -> list[bytes]:
    contracts = [
        (Contract(json.dumps(AVRO)), {**EVENT, "next": EVENT}),
        (Contract(PROTO, SchemaType.PROTOBUF), MESSAGE),
        (Contract(json.dumps(JSON), SchemaType.JSON), {"a": 1}),
    ]
    made = []
    for number, (contract, value) in enumerate(contracts):
        content = Serializer(registry, f"t{number}", contract).serialize(value).content
        assert content is not None
        made.append(content)
    return made


def mutations(originals: list[bytes], count: int, seed: int) -> Iterator[bytes]:
    chance = random.Random(seed)
    for _ in range(count):
        content = bytearray(chance.choice(originals))
        for _ in range(chance.choice((1, 1, 2, 5))):
            at = chance.randrange(5, len(content) + 1) if chance.random() < 0.9 else 0
            match chance.randrange(5):
                case 0:
                    content[at : at + 1] = bytes([chance.randrange(256)])
                case 1:
                    del content[at:]
                case 2:
                    content[at:at] = chance.randbytes(chance.randrange(1, 8))
                case 3:
                    del content[at : at + chance.randrange(1, 8)]
                case 4:
                    content[at:at] = b"\xff" * chance.randrange(1, 10)
            if len(content) < 5:
                break
        if len(content) > 5 and chance.random() < 0.95:
            content[:4] = b"\x00\x00\x00\x00"
            content[4] %= 3  # else nearly all would name a schema that does not exist
        yield bytes(content)


def read_all(count: int, seed: int) -> Counter[str]:
    registry = StoredSchemas()
    read = Deserializer(registry, "t", as_dicts=True)
    outcomes: Counter[str] = Counter()
    known = {0, 1, 2}
    for content in mutations(frames(registry), count, seed):
        if len(content) >= 5 and content[0] == 0 and int.from_bytes(content[1:5]) not in known:
            continue  # that is the registry's business
        if content[:1] == b"\x01" and len(content) >= 17:
            continue
        try:
            read.deserialize(content)
            outcomes["read"] += 1
        except DecodeError as wrong:
            outcomes[wrong.reason] += 1
    registry.close()
    return outcomes


def test_mutated_frames_are_read_or_refused() -> None:
    outcomes = read_all(40_000, seed=1)
    assert sum(outcomes.values()) > 36_000
    assert len(outcomes) >= 6, "many ways of being wrong were tried"
    assert outcomes["read"] > 400


def read_in_batches(count: int, seed: int) -> int:
    """Mutated frames of each schema in batches and one by one; how many, if they agree."""
    registry, agreed = StoredSchemas(), 0
    contents = list(mutations(frames(registry), count, seed))
    for number in range(3):
        prefix = bytes((0, 0, 0, 0, number))
        mine = [content for content in contents if content.startswith(prefix)]
        batch, wrongs = BatchDeserializer(registry, f"t{number}").deserialize_many(mine)
        one = Deserializer(registry, f"t{number}", reader=Contract(), as_dicts=True)
        refused = {wrong.row: wrong.reason for wrong in wrongs}
        alone = {row: why for row, content in enumerate(mine) if (why := refusal(one, content))}
        assert refused == alone
        assert batch.num_rows == len(mine)
        agreed += len(mine)
    registry.close()
    return agreed


def refusal(read: Deserializer, content: bytes) -> Reason | None:
    """Why it is not read; None if it is."""
    try:
        read.deserialize(content)
    except DecodeError as wrong:
        return wrong.reason
    return None


def test_batches_refuse_what_single_events_refuse() -> None:
    assert read_in_batches(8_000, seed=3) > 6_000


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_batches_of_many_mutated_frames_refuse_what_single_events_refuse() -> None:
    assert read_in_batches(400_000, seed=4) > 300_000


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_million_mutated_frames_are_read_or_refused() -> None:
    assert sum(read_all(1_100_000, seed=2).values()) >= 1_000_000
