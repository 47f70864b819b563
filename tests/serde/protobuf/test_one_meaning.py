"""The same Protobuf bytes have one meaning, read one by one or as a batch."""

import base64
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FieldDescriptor as Field
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client.registry import Registry
from penstock.schemas.model import SchemaType
from penstock.schemas.protobuf import parse as parse_protobuf
from penstock.serde.batch_serializers import BatchDeserializer
from penstock.serde.contract import Contract
from penstock.serde.errors import DecodeError
from penstock.serde.event_codec import InvalidValueError
from penstock.serde.frame import write_prefix
from penstock.serde.protobuf.columns import ProtobufRowsEncoder
from penstock.serde.protobuf.event import DEPTH_MAX, MessageTypes, ProtobufEventEncoder
from penstock.serde.protobuf.types import DURATION, TIMESTAMP, WRAPPERS
from penstock.serde.serializers import Deserializer, Serializer

SEEDS = st.integers(0, 2**32)
ORDER = "message Order { int32 id = 1; }"
HEAD = "message Head { string title = 1; }"


@given(seed=SEEDS)
@settings(max_examples=150, deadline=None)
def test_generated_events_and_readers_mean_the_same(seed: int, oracle: Any, reading: Any) -> None:
    maker = oracle.maker(seed)
    written = maker.message_type().DESCRIPTOR
    payloads = [maker.payload(written) for _ in range(8)]
    payloads += [damaged(maker.random, one) for one in payloads[: seed % 5]]
    file = maker.file if seed % 3 == 0 else changed(maker)
    writer, reader = (
        reading.protobuf(base64.b64encode(one.SerializeToString()).decode())
        for one in (maker.file, file)
    )
    indexes = (len(maker.file.message_type) - 1,)  # M0 is the last
    read = reading.readings(writer, reader, payloads, message="r.M0", indexes=indexes)
    assert read.reasons == read.reasons_alone
    message = MessageTypes(parse_protobuf(reader.text)).named("r.M0").DESCRIPTOR
    rows = oracle.rows_of(read.batch)
    for one, row, reason in zip(read.alone, rows, read.reasons, strict=True):
        if reason is None:
            assert row == as_row(message, one, oracle)


def damaged(random: Any, payload: bytes) -> bytes:
    place = random.randrange(len(payload) + 1)
    return payload[:place] + (random.randbytes(1) if random.random() < 0.5 else b"")


def changed(maker: Any) -> Any:
    """The file with fields that are gone, renamed, wider or new."""
    file = descriptor_pb2.FileDescriptorProto()
    file.CopyFrom(maker.file)
    for message in file.message_type:
        for field in list(message.field):
            is_plain = field.type != Field.TYPE_MESSAGE and not field.HasField("oneof_index")
            choice = maker.random.random()
            if is_plain and field.type != Field.TYPE_GROUP and choice < 0.2:
                message.field.remove(field)
            elif is_plain and field.type == Field.TYPE_INT32 and choice < 0.6:
                field.type = Field.TYPE_INT64
            elif field.type not in (Field.TYPE_MESSAGE, Field.TYPE_GROUP) and choice < 0.4:
                field.name = f"{field.name}_renamed"
        message.field.add(name="added", number=31, type=Field.TYPE_STRING, label=1)
    return file


def as_row(message: Any, value: dict[str, Any], oracle: Any) -> dict[str, Any]:
    """A dict of single reading as a struct: what is absent is null."""
    return {field.name: _cell(field, value, oracle) for field in message.fields}


def _cell(field: Any, value: dict[str, Any], oracle: Any) -> Any:
    if field.name not in value:
        return None
    given = value[field.name]
    entry = field.message_type
    if field.is_repeated and entry is not None and entry.GetOptions().map_entry:
        of_value = entry.fields_by_name["value"]
        return {key: _one(of_value, each, oracle) for key, each in given.items()}
    if field.is_repeated:
        return [_one(field, each, oracle) for each in given]
    return _one(field, given, oracle)


def _one(field: Any, value: Any, oracle: Any) -> Any:
    if field.enum_type is not None:
        return str(value)
    if field.message_type is None:
        return oracle.number(value) if isinstance(value, float) else value
    name = field.message_type.full_name
    if name == TIMESTAMP:
        return oracle.instant(value["seconds"], value["nanos"])
    if name == DURATION:
        return oracle.span(value["seconds"], value["nanos"])
    if name in WRAPPERS:
        return _one(field.message_type.fields_by_name["value"], value["value"], oracle)
    return as_row(field.message_type, value, oracle)


def proto(*messages: str) -> Contract:
    text = 'syntax = "proto3"; package q; ' + " ".join(messages)
    return Contract(text, SchemaType.PROTOBUF)


@pytest.fixture
def contents(registry: Registry, topic: str) -> list[Any]:
    """Orders under two versions; the second has a message above theirs."""
    old = Serializer(registry, topic, proto(ORDER)).serialize({"id": 1}).content
    later = Contract(proto(HEAD, ORDER).schema, SchemaType.PROTOBUF, message="q.Order")
    return [old, Serializer(registry, topic, later).serialize({"id": 2}).content]


def test_a_message_added_above_the_first_leaves_events_readable(
    contents: list[Any], registry: Registry, topic: str
) -> None:
    batch, wrongs = BatchDeserializer(registry, topic).deserialize_many(contents)
    assert not wrongs
    assert batch.to_pylist() == [{"id": 1}, {"id": 2}]
    read = Deserializer(registry, topic, as_dicts=True)
    assert [read.deserialize(one) for one in contents] == batch.to_pylist()


def test_columns_asked_for_before_any_event_are_of_the_first_message_there_was(
    contents: list[Any], registry: Registry, topic: str
) -> None:
    read = BatchDeserializer(registry, topic)
    assert read.arrow_schema().names == ["id"]
    assert not read.deserialize_many(contents).errors


def test_an_event_says_which_message_it_is(
    contents: list[Any], registry: Registry, topic: str
) -> None:
    one = Deserializer(registry, topic)
    assert [one.message_name(content) for content in contents] == ["q.Order", "q.Order"]


def test_only_the_named_message_is_read_in_both_ways(
    contents: list[Any], registry: Registry, topic: str
) -> None:
    schema = registry.latest(f"{topic}-value")
    assert schema.id is not None
    head = write_prefix(schema.id, (0,)) + b"\x0a\x01t"
    contract = Contract(message="q.Head")
    batch, wrongs = BatchDeserializer(registry, topic, reader=contract).deserialize_many(
        [head, *contents]
    )
    assert batch.to_pylist()[0] == {"title": "t"}
    assert [(one.row, one.reason) for one in wrongs] == [(1, "unresolvable"), (2, "unresolvable")]
    one = Deserializer(registry, topic, reader=contract, as_dicts=True)
    assert one.deserialize(head) == {"title": "t"}
    for content in contents:
        with pytest.raises(DecodeError, match=r"written as q.Order, to be read as q.Head"):
            one.deserialize(content)


def test_the_message_that_most_events_name_is_read(
    contents: list[Any], registry: Registry, topic: str
) -> None:
    schema = registry.latest(f"{topic}-value")
    assert schema.id is not None
    head = write_prefix(schema.id, (0,)) + b"\x0a\x01t"
    read = BatchDeserializer(registry, topic)
    batch, wrongs = read.deserialize_many([head, *contents])
    assert batch.to_pylist()[1:] == [{"id": 1}, {"id": 2}]
    assert [one.row for one in wrongs] == [0]
    assert "Contract(message=...)" in wrongs[0].detail
    assert read.arrow_schema().names == ["id"]


def test_what_has_many_items_is_read_in_both_ways(reading: Any) -> None:
    schema = reading.protobuf('syntax = "proto3"; message M { repeated bool f = 1; }')
    items = bytes(1 << 21)
    payload = b"\x0a\x80\x80\x80\x01" + items
    read = reading.readings(schema, schema, [payload], message="M", indexes=(0,))
    assert read.reasons == read.reasons_alone == [None]


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {"v": 1}
    for _ in range(levels):
        value = {"v": 1, "next": value}
    return value


def test_what_is_nested_too_deep_to_be_read_is_not_written() -> None:
    schema = parse_protobuf('syntax = "proto3"; message N { int32 v = 1; N next = 2; }')
    one, many = ProtobufEventEncoder(schema), ProtobufRowsEncoder(schema, None)
    payload = one.encode(nested(DEPTH_MAX))[0]
    assert many.encode([nested(DEPTH_MAX)], b"")[0].tobytes() == payload
    with pytest.raises(InvalidValueError, match="nested more than 100 deep"):
        one.encode(nested(DEPTH_MAX + 1))
    with pytest.raises(InvalidValueError, match="row 1: messages are nested more than 100 deep"):
        many.encode([nested(1), nested(DEPTH_MAX + 1)], b"")
