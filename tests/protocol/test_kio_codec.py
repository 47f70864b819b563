"""Requests of every key and version: what kio writes is read, what is broken is Malformed."""

import random
import tracemalloc
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from penstock.errors import ErrorCode, Malformed
from penstock.protocol.kio_codec import (
    api_name,
    encode,
    fill,
    known_versions,
    request_reader,
    request_type,
    response_reader,
    response_type,
)
from penstock.protocol.kio_schema import EntityType, FieldShape, is_flexible, shapes_of
from penstock.protocol.varint import unsigned_varint

KEYS = [key for key in range(100) if api_name(key)]
SEEDS = range(3)
BOMBS = [
    b"\xff\xff\xff\xff\x0f",  # the largest compact count
    b"\xff\xff\xff\xff\x07",
    b"\x7f\xff\xff\xff",  # the largest plain count
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xfe",
    b"\x00",
    b"\xff",
]


def any_entity(entity_type: EntityType, chance: random.Random) -> Any:
    """An entity with a value of its own in every field."""
    return entity_type(**{shape.name: any_value(shape, chance) for shape in shapes_of(entity_type)})


def any_value(shape: FieldShape, chance: random.Random) -> Any:
    if shape.nullable and chance.random() < 0.2:
        return None
    if shape.is_array:
        return tuple(any_item(shape, chance) for _ in range(chance.randrange(3)))
    return any_item(shape, chance)


def any_item(shape: FieldShape, chance: random.Random) -> Any:
    if shape.structure is not None:
        return any_entity(shape.structure, chance)
    assert shape.primitive is not None
    return ANY_PRIMITIVE[shape.primitive](chance)


def any_signed(bits: int) -> Callable[[random.Random], int]:
    return lambda chance: chance.randrange(-(1 << bits - 1), 1 << bits - 1)


def any_text(chance: random.Random) -> str:
    return "".join(chance.choices("ab\u00e9\u4e2d", k=chance.choice((0, 3, 130))))


def any_bytes(chance: random.Random) -> bytes:
    return chance.randbytes(chance.choice((0, 5, 200)))


def any_span(chance: random.Random) -> timedelta:
    return timedelta(milliseconds=chance.randrange(1 << 31))


ANY_PRIMITIVE: dict[str, Callable[[random.Random], Any]] = {
    "bool": lambda chance: chance.random() < 0.5,
    "int8": any_signed(8),
    "int16": any_signed(16),
    "int32": any_signed(32),
    "int64": any_signed(64),
    "uint16": lambda chance: chance.randrange(1 << 16),
    "float64": lambda chance: chance.random(),
    "string": any_text,
    "bytes": any_bytes,
    "records": any_bytes,
    "uuid": lambda chance: uuid.UUID(int=chance.randrange(1, 1 << 128)),
    "error_code": lambda chance: chance.choice(list(ErrorCode)),
    "timedelta_i32": any_span,
    "timedelta_i64": any_span,
}


def mutated(body: bytes, chance: random.Random) -> bytes:
    broken = bytearray(body)
    for _ in range(chance.randrange(1, 4)):
        position = chance.randrange(len(broken) + 1)
        match chance.randrange(5):
            case 0:
                del broken[position:]
            case 1:
                broken[position : position + 1] = chance.randbytes(1)
            case 2:
                broken[position:position] = chance.choice(BOMBS)
            case 3:
                bomb = chance.choice(BOMBS)
                broken[position : position + len(bomb)] = bomb
            case _:
                broken[position : position + chance.randrange(4)] = b""
    return bytes(broken)


@pytest.mark.parametrize("api_key", KEYS)
def test_what_kio_writes_is_read_and_what_is_broken_is_malformed(api_key: int) -> None:
    for version in known_versions(api_key):
        entity_type, read = request_type(api_key, version), request_reader(api_key, version)
        for seed in SEEDS:
            chance = random.Random(f"{api_key} {version} {seed}")
            entity = any_entity(entity_type, chance)
            body = encode(entity)
            assert read(b"head" + body, 4) == (entity, 4 + len(body))
            # as from librdkafka, which leaves three bytes after its Metadata 13
            assert read(body + b"\1\0\0", 0) == (entity, len(body) + 3)
            for _ in range(30):
                read_or_malformed(read, mutated(body, chance))


def read_or_malformed(read: Any, body: bytes) -> None:
    try:
        _, reached = read(body, 0)
    except Malformed:
        return
    assert reached == len(body)


@pytest.mark.parametrize("api_key", KEYS)
def test_every_truncation_is_malformed(api_key: int) -> None:
    for version in known_versions(api_key):
        read = request_reader(api_key, version)
        body = encode(any_entity(request_type(api_key, version), random.Random(api_key)))
        for size in range(0, len(body), 1 + len(body) // 60):
            with pytest.raises(Malformed):
                read(body[:size], 0)


@pytest.mark.parametrize("api_key", KEYS)
def test_tagged_fields_of_newer_clients_are_passed_over(api_key: int) -> None:
    for version in known_versions(api_key):
        entity_type = request_type(api_key, version)
        if not is_flexible(entity_type):
            continue
        entity = fill(entity_type)
        body = encode(entity)
        assert body.endswith(b"\0")  # no tagged fields
        newer = body[:-1] + b"\x02\x63\x03abc\x64\x00"
        assert request_reader(api_key, version)(newer, 0) == (entity, len(newer))


def test_unknown_tags_inside_arrays_are_passed_over() -> None:
    topic = b"\x00" * 16 + b"\x02t"
    plain = b"\x03" + topic + b"\x00" + topic + b"\x00" + b"\x01\x00\x00"
    newer = b"\x03" + topic + b"\x01\x05\x02xx" + topic + b"\x01\x05\x00" + b"\x01\x00\x00"
    read = request_reader(3, 12)
    assert read(newer, 0)[0] == read(plain, 0)[0]


def test_unknown_tags_inside_a_tagged_structure_are_passed_over() -> None:
    """FetchRequest's replica state is such a structure; its stated size must shrink as well."""
    replica = {"replica_id": 3, "replica_epoch": 9}
    entity = fill(request_type(1, 17), replica_state=replica)
    body = encode(entity)
    state = b"\x00\x00\x00\x03" + (9).to_bytes(8, "big")
    assert body.count(b"\x01\x0d" + state + b"\x00") == 1
    newer = body.replace(b"\x01\x0d" + state + b"\x00", b"\x01\x12" + state + b"\x01\x07\x03abc")
    assert request_reader(1, 17)(newer, 0)[0] == entity


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (12, b"\xff\xff\xff\xff\x0f\x00\x00"),
        (12, b"\x80\x80\x80\x80\x08\x00\x00\x00"),
        (4, b"\x7f\xff\xff\xff\x00\x01a"),
        (4, b"\xff\xff\xff\xfe\x00"),
        (12, b"\x01\x00\x00\xff\xff\xff\xff\x0f"),
    ],
)
def test_a_huge_count_in_a_small_frame_reserves_nothing(version: int, body: bytes) -> None:
    read = request_reader(3, version)
    tracemalloc.start()
    try:
        with pytest.raises(Malformed):
            read(body, 0)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 100_000


def test_more_items_than_any_client_sends_are_refused() -> None:
    count = 300_000
    body = unsigned_varint(count + 1) + (bytes(16) + b"\x02t\x00") * count + b"\x01\x00\x00"
    with pytest.raises(Malformed, match="300000 items"):
        request_reader(3, 12)(body, 0)


@pytest.mark.parametrize(
    ("api_key", "version", "body", "reason"),
    [
        (19, 5, b"\x00\x00\x00\x00\x01\x00\x00", "topics is null"),
        (12, 4, b"\x00\x00\x00\x00\x01\x02m\x00\x00", "group_id is null"),
        (12, 3, b"\xff\xff\x00\x00\x00\x01\x00\x01m\xff\xff", "group_id says -1"),
        (12, 4, b"\x02\xff\x00\x00\x00\x01\x02m\x00\x00", "UTF-8"),
        (75, 0, b"\x01\x00\x00\x00\x01\x07\x00", "marked 7"),
    ],
)
def test_what_the_schema_forbids_is_malformed(
    api_key: int, version: int, body: bytes, reason: str
) -> None:
    with pytest.raises(Malformed, match=reason):
        request_reader(api_key, version)(body, 0)


def test_a_request_is_read_from_a_buffer_that_may_be_written_to() -> None:
    body = encode(fill(request_type(12, 4), group_id="g", member_id="m"))
    for buffer in (bytearray(body), memoryview(bytearray(body)), memoryview(body)):
        assert request_reader(12, 4)(buffer, 0)[0].group_id == "g"


def test_fill_gives_each_version_the_fields_it_has() -> None:
    fields: dict[str, Any] = {
        "throttle_time": 1_500,
        "cluster_id": "c",
        "topics": [{"name": "t", "topic_id": uuid.UUID(int=5), "partitions": [{"leader_id": 3}]}],
    }
    newest = fill(response_type(3, 13), **fields)
    assert newest.throttle_time == timedelta(milliseconds=1_500)
    assert newest.topics[0].topic_id == uuid.UUID(int=5)
    assert newest.topics[0].partitions[0].leader_epoch == -1
    oldest = fill(response_type(3, 0), **fields)
    assert oldest.topics[0].partitions[0].leader_id == 3
    assert not hasattr(oldest, "cluster_id")
    for version in known_versions(3):
        entity = fill(response_type(3, version), **fields)
        assert response_reader(3, version)(encode(entity), 0)[0] == entity


@pytest.mark.parametrize("api_key", KEYS)
def test_fill_alone_gives_a_message_that_can_be_sent(api_key: int) -> None:
    for version in known_versions(api_key):
        entity = fill(response_type(api_key, version))
        assert response_reader(api_key, version)(encode(entity), 0)[0] == entity


def test_fill_does_not_know_names_that_no_version_has() -> None:
    with pytest.raises(AssertionError, match="no version of MetadataResponse knows topicks"):
        fill(response_type(3, 12), topicks=[])
    with pytest.raises(AssertionError, match=r"knows topics\.partitions\.lead"):
        fill(response_type(3, 12), topics=[{"partitions": [{"lead": 1}]}])


def test_entities_may_be_given_ready_made() -> None:
    kind = response_type(3, 12)
    broker = fill(kind, brokers=[{"node_id": 1, "host": "h", "port": 9}]).brokers[0]
    assert fill(kind, brokers=[broker]).brokers == (broker,)


def test_an_unknown_key_has_no_versions() -> None:
    assert not known_versions(99)
    assert api_name(99) is None
    assert list(known_versions(1)) == list(range(4, 19))
