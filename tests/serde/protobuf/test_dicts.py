"""Dicts are written by one walk over Python's objects, and as upb writes them one by one."""

import datetime
import gc
import math
import sys
import threading
from itertools import pairwise
from typing import Any

import pytest
from google.protobuf.message import EncodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.columns.protobuf.dict_program import ONEOFS_MAX
from penstock.columns.protobuf.run import encode_dicts
from penstock.columns.vm.payloads import PayloadLimits, PayloadsTooLargeError
from penstock.schemas.protobuf import parse
from penstock.serde.event_codec import InvalidValueError
from penstock.serde.protobuf.columns import ProtobufRowsEncoder
from penstock.serde.protobuf.compile_dicts import INSTRUCTIONS_MAX, compile_dicts
from penstock.serde.protobuf.event import UNFIT, MessageTypes, as_dict, payload_of

SEEDS = st.integers(0, 2**32)
PREFIX = b"\x00\x00\x00\x00\x07\x00"
STRANGE: tuple[Any, ...] = (
    None,
    True,
    3,
    -1,
    -(2**70),
    2**31,
    2**32,
    2**63,
    2**64 - 1,
    1.5,
    1e39,
    math.nan,
    "text",
    "E1",
    "\ud800",
    b"b",
    bytearray(b"b"),
    [],
    [None],
    (),
    {},
    {"x": 1},
    {"seconds": 1},
    datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
    datetime.timedelta(milliseconds=-1),
)
SHOP = """syntax = "proto2"; package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/struct.proto";
message Order {
  required int32 id = 1;
  optional Status status = 2;
  oneof how { string card = 3; int32 cash = 4; }
  repeated string tags = 5;
  map<string, Status> states = 6;
  optional google.protobuf.Timestamp at = 7;
  optional Tree tree = 8;
  optional google.protobuf.Struct extra = 9;
  repeated Item items = 10;
  map<int32, Item> by_number = 11;
  repeated google.protobuf.Timestamp times = 12;
  optional group Note = 13 { optional string text = 1; }
  repeated google.protobuf.ListValue lists = 14;
}
message Item { optional string sku = 1; optional uint64 count = 2; }
message Tree { optional string name = 1; repeated Tree leaves = 2; }
enum Status { NEW = 0; PAID = 1; }
"""
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=datetime.UTC)


def type_of(text: str) -> Any:
    return MessageTypes(parse(text)).named("shop.Order")


@pytest.fixture(scope="module")
def order() -> Any:
    return type_of(SHOP)


def written(message_type: Any, row: Any) -> bytes | None:
    """By the walk; None if it does not take the row."""
    program = compile_dicts(message_type.DESCRIPTOR)
    assert program is not None
    result = encode_dicts(program, [row], PREFIX)
    if result is None:
        return None
    (payload,) = payloads((result.buffer, result.offsets))
    assert payload.startswith(PREFIX)
    return payload.removeprefix(PREFIX)


def payloads(result: tuple[Any, Any]) -> list[bytes]:
    buffer, offsets = result
    return [buffer[start:end].tobytes() for start, end in pairwise(offsets)]


def by_upb(message_type: Any, row: Any) -> bytes | None:
    try:
        return payload_of(message_type(**row))
    except UNFIT:
        return None


def ordered(message_type: Any, payload: bytes) -> bytes:
    """The entries of maps in an order of their own."""
    again: bytes = message_type.FromString(payload).SerializeToString(deterministic=True)
    return again


def same(message_type: Any, payload: bytes, wanted: bytes, oracle: Any) -> bool:
    if not oracle.has_maps(message_type.DESCRIPTOR):
        return payload == wanted
    return ordered(message_type, payload) == ordered(message_type, wanted)


def rows_of(maker: Any, message_type: Any, oracle: Any) -> list[Any]:
    read = (maker.payload(message_type.DESCRIPTOR) for _ in range(12))
    sound = [one for one in read if oracle.read(message_type, one) is not None]
    return [as_dict(message_type.FromString(one)) for one in sound]


def spoiled(value: Any, chance: Any) -> Any:
    """The value with something strange in it, somewhere."""
    if isinstance(value, dict) and value and chance.random() < 0.8:
        key = chance.choice(list(value))
        if chance.random() < 0.2:
            return {name: one for name, one in value.items() if name != key}
        if chance.random() < 0.1:
            return value | {chance.choice(("x", "f0", 1, True)): chance.choice(STRANGE)}
        return value | {key: spoiled(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.8:
        at = chance.randrange(len(value))
        return [*value[:at], spoiled(value[at], chance), *value[at + 1 :]]
    return chance.choice(STRANGE)


@given(seed=SEEDS)
@settings(max_examples=150, deadline=None)
def test_random_messages_as_dicts_are_all_taken_and_written_as_upb_does(
    seed: int, oracle: Any
) -> None:
    maker = oracle.maker(seed)
    message_type = maker.message_type()
    for row in rows_of(maker, message_type, oracle):
        wanted = by_upb(message_type, row)
        payload = written(message_type, row)
        assert (payload is None) == (wanted is None), row
        if payload is not None and wanted is not None:
            assert same(message_type, payload, wanted, oracle), row


@given(seed=SEEDS)
@settings(max_examples=250, deadline=None)
def test_strange_values_are_left_to_upb_or_written_as_it_does(seed: int, oracle: Any) -> None:
    maker = oracle.maker(seed)
    message_type = maker.message_type()
    for row in rows_of(maker, message_type, oracle):
        strange = spoiled(row, maker.random)
        if not isinstance(strange, dict) or not all(isinstance(key, str) for key in strange):
            assert written(message_type, strange) is None or strange == {}
            continue
        payload = written(message_type, strange)
        if payload is not None:
            wanted = by_upb(message_type, strange)
            assert wanted is not None, strange
            assert same(message_type, payload, wanted, oracle), strange


@pytest.mark.parametrize(
    "row",
    [
        {"id": 1},
        {"id": -1, "status": "PAID", "card": ""},
        {"id": 1, "status": 1, "cash": 0, "card": None},
        {"id": 1, "tags": ["a" * 200, "", "é"], "states": {}},
        {"id": 1, "at": NOW, "times": [NOW, {"seconds": 2**40, "nanos": -1}]},
        {"id": 1, "at": {"seconds": None}},
        {"id": 1, "tree": {"name": "a", "leaves": [{"leaves": [{"name": "c"}]}]}},
        {"id": 1, "extra": {"any": [1, "x", None, {"fields": {}}]}, "lists": [[1], []]},
        {"id": 1, "items": [{"sku": "s" * 130, "count": 2**64 - 1}, {}] * 300},
        {"id": 1, "by_number": {-5: {"count": 2**63}}},
        {"id": 1, "note": {"text": "n" * 200}},
    ],
)
def test_whatever_upb_takes_in_a_usual_way_is_taken(row: Any, order: Any) -> None:
    payload = written(order, row)
    assert payload is not None
    assert payload == order(**row).SerializeToString()


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"id": None},
        {"id": True},
        {"id": 2**31},
        {"id": 1, "colour": "red"},
        {"id": 1, "card": "c", "cash": 1},
        {"id": 1, "status": "LOST"},
        {"id": 1, "status": 7},
        {"id": 1, "status": True},
        {"id": 1, "tags": ("a",)},
        {"id": 1, "tags": ["a", None]},
        {"id": 1, "states": {"k": None}},
        {"id": 1, "states": {1: 1}},
        {"id": 1, "items": [None]},
        {"id": 1, "items": [{"count": -1}]},
        {"id": 1, "items": [{"count": 2**64}]},
        {"id": 1, "by_number": {1: None}},
        {"id": 1, "note": {"text": b"bytes"}},
        {"id": 1, "extra": 1},
        {"id": 1, "tree": {"leaves": [{"name": 1}]}},
        {"id": 1, "at": "2026-01-02"},
    ],
)
def test_anything_else_is_for_upb_to_say(row: Any, order: Any) -> None:
    assert written(order, row) is None
    rows = ProtobufRowsEncoder(parse(SHOP), "shop.Order")
    wanted = by_upb(order, row)
    if wanted is not None:
        assert payloads(rows.encode([{"id": 1}, row], PREFIX))[1] == PREFIX + wanted
        return
    with pytest.raises(UNFIT) as refused:
        payload_of(order(**row))
    with pytest.raises(InvalidValueError) as invalid:
        rows.encode([{"id": 1}, row, {}], PREFIX)
    reason, _, _ = str(refused.value).partition("<class")  # of which there are two
    assert str(invalid.value).startswith(f"row 1: {reason}")


def test_what_is_missing_is_named_where_upb_crashes_over_it_and_as_it_does_elsewhere() -> None:
    text = """syntax = "proto2"; package shop;
    message Order { optional Item one = 1; map<int32, int32> numbers = 2; repeated Item many = 3;
      map<string, Item> by_name = 4; required int32 id = 5; }
    message Item { required string sku = 1; }"""
    message_type = type_of(text)
    row: dict[str, Any] = {"many": [{"sku": "a"}, {}], "one": {}, "numbers": {1: 0}}
    assert written(message_type, row) is None
    with pytest.raises(
        InvalidValueError, match=r"^row 0: .* missing required fields: id,one.sku,many\[1\].sku$"
    ):
        ProtobufRowsEncoder(parse(text), None).encode([row], PREFIX)
    with pytest.raises(InvalidValueError, match=r"missing required fields: by_name\['k'\].sku$"):
        ProtobufRowsEncoder(parse(text), None).encode([{"id": 1, "by_name": {"k": {}}}], PREFIX)
    del row["numbers"]
    with pytest.raises(EncodeError) as ours:
        payload_of(message_type(**row))
    with pytest.raises(EncodeError) as theirs:
        message_type(**row).SerializeToString()
    assert str(ours.value) == str(theirs.value)


def test_messages_among_dicts_and_other_sequences_are_written(order: Any) -> None:
    rows: list[Any] = [{"id": 1}, {"id": 2, "at": NOW}]
    wanted = [PREFIX + order(**row).SerializeToString() for row in rows]
    writer = ProtobufRowsEncoder(parse(SHOP), "shop.Order")
    assert payloads(writer.encode(rows, PREFIX)) == wanted
    assert payloads(writer.encode(tuple(rows), PREFIX)) == wanted
    assert payloads(writer.encode([rows[0], order(**rows[1])], PREFIX)) == wanted
    assert writer.encode([], PREFIX)[1].tolist() == [0]


def test_nothing_is_kept_of_the_rows_whether_they_are_taken_or_not(order: Any) -> None:
    item, tags, number = {"sku": "a", "count": 10**6}, ["t", "u"], {7: {"sku": "b"}}
    at, tree = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), {"name": "root"}
    items = [item, item]
    good = {"id": 1, "items": items, "tags": tags, "by_number": number, "at": at, "tree": tree}
    bad = {**good, "items": [item, {"sku": 1}]}
    late = {**good, "lists": [1]}
    objects = (item, items, tags, number, number[7], at, tree, good, bad, late)
    program = compile_dicts(order.DESCRIPTOR)
    assert program is not None
    cases: list[Any] = [[good], [bad], [good, late]]
    for rows in cases:  # once before: upb caches what it needs
        encode_dicts(program, rows)
    gc.collect()
    before = [sys.getrefcount(each) for each in objects]
    for _ in range(50):
        for rows in cases:
            encode_dicts(program, rows)
    assert [sys.getrefcount(each) for each in objects] == before


def test_rows_that_another_thread_changes_never_crash(order: Any) -> None:
    writer = ProtobufRowsEncoder(parse(SHOP), "shop.Order")
    rows: list[Any] = []
    stopping = threading.Event()

    def change() -> None:
        while not stopping.is_set():
            items: list[Any] = [{"sku": "a" * 30} for _ in range(5)]
            numbers = {1: {"sku": "b"}, 2: {}}
            row = {"id": 1, "items": items, "times": [NOW, NOW], "at": NOW, "by_number": numbers}
            rows[:] = [row] * 20
            items.clear()
            numbers.clear()
            row["times"] = []
            rows.clear()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    changing = threading.Thread(target=change)
    changing.start()
    try:
        for _ in range(300):
            some = list(rows)
            assert len(writer.encode(some, PREFIX)[1]) == len(some) + 1
    finally:
        stopping.set()
        changing.join()
        sys.setswitchinterval(interval)


def test_keys_that_change_what_is_walked_never_crash(order: Any) -> None:
    program = compile_dicts(order.DESCRIPTOR)
    assert program is not None

    class Key(str):
        """Equal to no name, and to be compared with one: then it takes everything away."""

        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            items.clear()
            numbers.clear()
            row.pop("tags", None)
            return False

    for name in ("sku", "count", "tags", "id"):
        items: list[Any] = [{"sku": "a"}, {Key(name): "b" * 40, "count": 1}, {"sku": "c"}]
        numbers: dict[int, Any] = {1: {Key(name): "d"}, 2: {"sku": "e" * 40}}
        row: dict[Any, Any] = {"id": 1, "tags": ["x"] * 9, "items": items, "by_number": numbers}
        row[Key(name)] = "odd"
        assert encode_dicts(program, [row, row]) is None


def test_many_and_large_dicts_make_the_output_grow_up_to_the_limit(order: Any) -> None:
    large = {"id": 1, "items": [{"sku": "é" * 300_000}], "note": {"text": "n" * 70_000}}
    rows = [large, *({"id": 2, "tags": ["y"]},) * 3000, large]
    program = compile_dicts(order.DESCRIPTOR)
    assert program is not None
    result = encode_dicts(program, rows, PREFIX)
    assert result is not None
    assert payloads((result.buffer, result.offsets)) == [
        PREFIX + order(**row).SerializeToString() for row in rows
    ]
    with pytest.raises(PayloadsTooLargeError):
        encode_dicts(program, rows, PREFIX, PayloadLimits(output_bytes_max=500_000))


def test_every_size_around_a_length_of_one_byte_and_of_two_is_right(order: Any) -> None:
    program = compile_dicts(order.DESCRIPTOR)
    assert program is not None
    sizes = [*range(110, 140), *range(16_370, 16_390)]
    rows = [{"id": 1, "items": [{"sku": "s" * size, "count": 1}, {}]} for size in sizes]
    result = encode_dicts(program, rows)
    assert result is not None
    assert payloads((result.buffer, result.offsets)) == [
        order(**row).SerializeToString() for row in rows
    ]


def test_messages_beyond_what_a_program_holds_are_left_to_upb() -> None:
    oneofs = "".join(
        f"oneof o{n} {{ int32 a{n} = {2 * n + 1}; int32 b{n} = {2 * n + 2}; }}"
        for n in range(ONEOFS_MAX + 1)
    )
    wide = f'syntax = "proto3"; package shop; message Order {{ {oneofs} }}'
    assert compile_dicts(type_of(wide).DESCRIPTOR) is None
    row = {"a0": 1, f"b{ONEOFS_MAX}": 2}
    wanted = type_of(wide)(**row).SerializeToString()
    assert payloads(ProtobufRowsEncoder(parse(wide), None).encode([row], b"")) == [wanted]


def test_a_message_of_very_many_is_walked_as_far_as_a_program_goes() -> None:
    levels = "".join(
        f"message L{n} {{ L{n + 1} a = 1; L{n + 1} b = 2; L{n + 1} c = 3; }}" for n in range(12)
    )
    order = "message Order { L0 l = 1; L0 other = 2; int32 id = 3; }"
    text = f'syntax = "proto3"; package shop; {order} {levels} message L12 {{ int32 n = 1; }}'
    message_type = type_of(text)
    program = compile_dicts(message_type.DESCRIPTOR)
    assert program is not None
    assert INSTRUCTIONS_MAX < len(program.code) < 2 * INSTRUCTIONS_MAX
    leaf: Any = {"n": 5}
    for _ in range(12):
        leaf = {"a": leaf, "c": leaf} if len(str(leaf)) < 500 else {"b": leaf}
    rows: list[Any] = [{"l": leaf, "id": 7}, {"other": leaf}, {"other": {"a": {}}}]
    for row in rows:
        assert written(message_type, row) == by_upb(message_type, row)


def test_a_message_of_very_many_levels_is_walked_as_far_as_they_could_be_read() -> None:
    levels = "".join(f"message L{n} {{ L{n + 1} a = 1; int32 n = 2; }}" for n in range(150))
    order = "message Order { L0 l = 1; }"
    text = f'syntax = "proto3"; package shop; {order} {levels} message L150 {{ int32 n = 1; }}'
    message_type = type_of(text)
    row: Any = {"n": 5}
    for _ in range(120):
        row = {"a": row, "n": 300}
    assert written(message_type, {"l": row}) == by_upb(message_type, {"l": row})
