"""Every message in every version, with kio's codecs as the oracle in both directions."""

from __future__ import annotations

import random
import tracemalloc
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ErrorCode, Malformed, Refused
from penstock.protocol.api import Api, known_versions, request_schema, response_schema
from penstock.protocol.bind import WireName, bind
from penstock.protocol.field_codecs import TIME_TYPES, WrittenOnce
from penstock.protocol.kio_schema import EntityType, is_flexible, shapes_of
from penstock.protocol.message import Message
from penstock.protocol.messages.classic_groups import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.fetch import FETCH, FetchingReplica
from penstock.protocol.messages.metadata import METADATA, MetadataResponse, MetadataTopic
from penstock.protocol.messages.table import MESSAGES
from penstock.protocol.varint import unsigned_varint
from tests.support.kio_messages import any_message, encode, fill_request, fill_response

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Row = Message[Any, Any]

ROWS = list(MESSAGES.values())
SEEDS = range(4)
BOMBS = [
    b"\xff\xff\xff\xff\x0f",  # the largest compact count
    b"\xff\xff\xff\xff\x07",
    b"\x7f\xff\xff\xff",  # the largest fixed count
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xfe",
    b"\x00",
    b"\xff",
]
REFUSAL = Refused(ErrorCode.cluster_authorization_failed, "not allowed")
every_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.api.name.lower())


def joined(written: Any) -> bytes:
    return written if isinstance(written, bytes) else b"".join(written)


def throttle_of(entity: Any) -> int:
    span = getattr(entity, "throttle_time", None)
    return 0 if span is None else round(span.total_seconds() * 1000)


# The same bytes as kio's.


def check_request(row: Row, version: int, rng: random.Random) -> None:
    body = encode(any_message(request_schema(row.api, version), rng))
    request = row.read_request(memoryview(b"head" + body), 4, version)
    assert type(request) is row.request
    assert joined(row.write_request(request, version)) == body


def check_response(row: Row, version: int, rng: random.Random) -> None:
    entity = any_message(response_schema(row.api, version), rng)
    body = encode(entity)
    response = row.read_response(memoryview(b"head" + body), 4, version)
    assert type(response) is row.response
    assert joined(row.write_response(response, version, throttle_of(entity))) == body


checks = [check_request, check_response]


@every_row
@pytest.mark.parametrize("check", checks)
def test_what_kio_writes_is_read_and_written_again_the_same(
    row: Row, check: Callable[..., None]
) -> None:
    for version in known_versions(row.api):
        for seed in SEEDS:
            check(row, version, random.Random(f"{row.api} {version} {seed}"))


@settings(deadline=None, max_examples=300)
@given(row=st.sampled_from(ROWS), check=st.sampled_from(checks), seed=st.integers(), data=st.data())
def test_any_message_of_kio_is_read_and_written_again_the_same(
    row: Row, check: Callable[..., None], seed: int, data: st.DataObject
) -> None:
    check(row, data.draw(st.sampled_from(known_versions(row.api))), random.Random(seed))


# Fields.


def names_in(schema: EntityType) -> Iterator[str]:
    """The names of all fields, in all structures."""
    for shape in shapes_of(schema):
        yield f"{shape.name}_ms" if shape.primitive in TIME_TYPES else shape.name
        if shape.structure is not None:
            yield from names_in(shape.structure)


def wire_names_in(form: Any) -> Iterator[tuple[str, ...]]:
    """What each field is called in schemas, in all structures of a message."""
    for name, hint in get_type_hints(form, include_extras=True).items():
        marks = [mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, WireName)]
        yield marks[0].names if marks else (name,)
        yield from wire_names_in_parts(hint)


def wire_names_in_parts(hint: Any) -> Iterator[tuple[str, ...]]:
    if isinstance(hint, type) and hasattr(hint, "_fields"):
        yield from wire_names_in(hint)
    for part in get_args(hint):
        yield from wire_names_in_parts(part)


TAGGED_BY_US = {"metadata_offset"}  # in a tagged field that Kafka does not know


@every_row
def test_each_field_is_in_some_version(row: Row) -> None:
    """Another would have its default in every version."""
    for form, load in ((row.request, request_schema), (row.response, response_schema)):
        versions = known_versions(row.api)
        known = {name for version in versions for name in names_in(load(row.api, version))}
        for names in wire_names_in(form):
            assert known & {*names} or {*names} <= TAGGED_BY_US, names


class GroupOnly(NamedTuple):
    group_id: str


class CodeAsText(NamedTuple):
    error_code: str


def test_a_field_that_a_message_lacks_is_a_bug() -> None:
    message = bind(Api.HEARTBEAT, GroupOnly, HeartbeatResponse)
    with pytest.raises(AssertionError, match="GroupOnly lacks generation_id of HeartbeatRequest"):
        message.write_request(GroupOnly("g"), 4)


def test_a_field_of_another_type_than_the_schema_s_is_a_bug() -> None:
    message = bind(Api.HEARTBEAT, HeartbeatRequest, CodeAsText)
    with pytest.raises(AssertionError, match=r"CodeAsText\.error_code: .* does not fit error_code"):
        message.write_response(CodeAsText("none"), 4, 0)


# Refusals.


def codes_in(value: Any) -> Iterator[ErrorCode]:
    if isinstance(value, ErrorCode):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from codes_in(part)


@every_row
def test_a_refusal_reaches_the_client(row: Row) -> None:
    for version in known_versions(row.api):
        entity = fill_request(row.api, version, **filled(request_schema(row.api, version)))
        request = row.read_request(memoryview(encode(entity)), 0, version)
        refused = row.refuse(request, REFUSAL)
        body = joined(row.write_response(refused, version, 0))
        read = row.read_response(memoryview(body), 0, version)
        codes = {*codes_in(read)}
        assert REFUSAL.code in codes, f"version {version}"


def filled(schema: EntityType) -> dict[str, Any]:
    """One entry in every array."""
    values: dict[str, Any] = {}
    for shape in shapes_of(schema):
        if shape.is_array and shape.structure is not None:
            values[shape.name] = [filled(shape.structure)]
        elif shape.is_array and shape.primitive in ("string", "int32"):
            values[shape.name] = ["t" if shape.primitive == "string" else 0]
    return values


# Bytes from peers.


def mutated(body: bytes, rng: random.Random) -> bytes:
    broken = bytearray(body)
    for _ in range(rng.randrange(1, 4)):
        position = rng.randrange(len(broken) + 1)
        match rng.randrange(5):
            case 0:
                del broken[position:]
            case 1:
                broken[position : position + 1] = rng.randbytes(1)
            case 2:
                broken[position:position] = rng.choice(BOMBS)
            case 3:
                bomb = rng.choice(BOMBS)
                broken[position : position + len(bomb)] = bomb
            case _:
                broken[position : position + rng.randrange(4)] = b""
    return bytes(broken)


@every_row
def test_broken_bytes_are_malformed_or_another_message(row: Row) -> None:
    for version in known_versions(row.api):
        rng = random.Random(f"{row.api} {version}")
        for schema, read in (
            (request_schema(row.api, version), row.read_request),
            (response_schema(row.api, version), row.read_response),
        ):
            body = encode(any_message(schema, rng))
            for _ in range(40):
                with suppress(Malformed):
                    read(memoryview(mutated(body, rng)), 0, version)


@every_row
def test_every_truncation_is_malformed(row: Row) -> None:
    for version in known_versions(row.api):
        for schema, read in (
            (request_schema(row.api, version), row.read_request),
            (response_schema(row.api, version), row.read_response),
        ):
            body = encode(any_message(schema, random.Random(row.api)))
            for size in range(0, len(body), 1 + len(body) // 60):
                with pytest.raises(Malformed):
                    read(memoryview(body[:size]), 0, version)


@every_row
def test_bytes_after_a_message_are_ignored(row: Row) -> None:
    """librdkafka sends three with Metadata 13, and brokers accept that."""
    for version in known_versions(row.api):
        body = encode(any_message(request_schema(row.api, version), random.Random(row.api)))
        request = row.read_request(memoryview(body + b"\1\0\0"), 0, version)
        assert joined(row.write_request(request, version)) == body


@every_row
def test_tagged_fields_of_newer_peers_are_skipped(row: Row) -> None:
    for version in known_versions(row.api):
        if not is_flexible(request_schema(row.api, version)):
            continue
        for entity, read in (
            (fill_request(row.api, version), row.read_request),
            (fill_response(row.api, version), row.read_response),
        ):
            body = encode(entity)
            assert body.endswith(b"\0")  # no tagged fields
            newer = body[:-1] + b"\x02\x63\x03abc\x64\x00"
            assert read(memoryview(newer), 0, version) == read(memoryview(body), 0, version)


def test_unknown_tags_inside_arrays_are_skipped() -> None:
    topic = b"\x00" * 16 + b"\x02t"
    older = b"\x03" + topic + b"\x00" + topic + b"\x00" + b"\x01\x00\x00"
    newer = b"\x03" + topic + b"\x01\x05\x02xx" + topic + b"\x01\x05\x00" + b"\x01\x00\x00"
    read = METADATA.read_request
    assert read(memoryview(newer), 0, 12) == read(memoryview(older), 0, 12)


def test_unknown_tags_inside_a_tagged_structure_are_skipped() -> None:
    replica = {"replica_id": 3, "replica_epoch": 9}
    body = encode(fill_request(Api.FETCH, 17, replica_state=replica))
    state = b"\x00\x00\x00\x03" + (9).to_bytes(8, "big")
    assert body.count(b"\x01\x0d" + state + b"\x00") == 1
    newer = body.replace(b"\x01\x0d" + state + b"\x00", b"\x01\x12" + state + b"\x01\x07\x03abc")
    assert FETCH.read_request(memoryview(newer), 0, 17).replica == FetchingReplica(3, 9)


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
    METADATA.read_request(memoryview(encode(fill_request(Api.METADATA, version))), 0, version)
    tracemalloc.start()
    try:
        with pytest.raises(Malformed):
            METADATA.read_request(memoryview(body), 0, version)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 100_000


def test_more_items_than_any_client_sends_are_malformed() -> None:
    count = 300_000
    body = unsigned_varint(count + 1) + (bytes(16) + b"\x02t\x00") * count + b"\x01\x00\x00"
    with pytest.raises(Malformed, match="300000 entries"):
        METADATA.read_request(memoryview(body), 0, 12)


@pytest.mark.parametrize(
    ("api", "version", "body", "reason"),
    [
        (Api.CREATE_TOPICS, 5, b"\x00\x00\x00\x00\x01\x00\x00", "topics is null"),
        (Api.HEARTBEAT, 4, b"\x00\x00\x00\x00\x01\x02m\x00\x00", "group_id is null"),
        (Api.HEARTBEAT, 3, b"\xff\xff\x00\x00\x00\x01\x00\x01m\xff\xff", "group_id is null"),
        (Api.HEARTBEAT, 4, b"\x02\xff\x00\x00\x00\x01\x02m\x00\x00", "UTF-8"),
        (Api.DESCRIBE_TOPIC_PARTITIONS, 0, b"\x01\x00\x00\x00\x01\x07\x00", "marked 7"),
    ],
)
def test_what_the_schema_forbids_is_malformed(
    api: Api, version: int, body: bytes, reason: str
) -> None:
    with pytest.raises(Malformed, match=reason):
        MESSAGES[api].read_request(memoryview(body), 0, version)


def test_an_error_code_that_is_not_defined_is_an_unknown_error() -> None:
    body = (30_000).to_bytes(2, "big")
    assert MESSAGES[Api.HEARTBEAT].read_response(memoryview(body), 0, 0).error_code == -1


# Shared items.


def test_an_item_that_responses_share_is_written_once_for_each_version() -> None:
    topic = MetadataTopic("t")
    shared = WrittenOnce(topic)
    for version in known_versions(Api.METADATA):
        for _ in range(2):
            with_shared = METADATA.write_response(MetadataResponse(topics=[shared]), version, 5)
            assert with_shared == METADATA.write_response(
                MetadataResponse(topics=[topic]), version, 5
            )
