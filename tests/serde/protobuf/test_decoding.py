"""Payloads to Arrow: types, presence, and Protobuf's rules for what comes more than once."""

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.columns.protobuf.read_program import ProtobufFault as Fault
from penstock.columns.vm.payloads import OutputTooLargeError, PayloadLimits
from penstock.schemas.protobuf import parse
from penstock.serde.protobuf.batch import ProtobufBatchDecoder
from penstock.serde.protobuf.event import MessageTypes

SHOP = """syntax = "proto3"; package shop;
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Order {
  uint64 id = 1;
  optional string note = 2;
  Status status = 3;
  Address address = 4;
  repeated Line lines = 5;
  map<string, Line> by_name = 6;
  oneof how { string card = 7; Address invoice = 8; Status other = 9; }
  google.protobuf.Timestamp at = 10;
  google.protobuf.Duration took = 11;
  google.protobuf.DoubleValue weight = 12;
  repeated google.protobuf.StringValue names = 13;
  google.protobuf.Any any = 14;
  repeated sint32 numbers = 15;
  Nothing nothing = 536870911;
}
message Line { string sku = 1; repeated uint32 counts = 2; }
message Address { string city = 1; repeated Line lines = 2; optional int32 floor = 3; }
message Nothing {}
enum Status { NEW = 0; PAID = 2; }
"""
OLD = """syntax = "proto2"; package old;
message Row {
  optional string name = 1;
  optional group Part = 2 { optional int32 n = 1; }
  optional Kind kind = 3 [default = B];
  repeated Kind kinds = 4 [packed = true];
  map<int32, Kind> by_number = 5;
  optional bool flag = 6;
}
enum Kind { A = 0; B = 1; }
"""


@pytest.fixture(scope="module")
def order() -> Any:
    return MessageTypes(parse(SHOP)).named("shop.Order")


@pytest.fixture(scope="module")
def row() -> Any:
    return MessageTypes(parse(OLD)).named("old.Row")


def decoded(
    oracle: Any, message_type: Any, payloads: list[bytes], columns: list[str] | None = None
) -> tuple[list[Any], list[Fault]]:
    batch, errors = ProtobufBatchDecoder(message_type, columns).decode(*oracle.joined(payloads))
    return oracle.rows_of(batch), [Fault(code) for code in errors]


def test_fields_have_the_types_that_arrow_has_for_them(order: Any) -> None:
    nowhere = np.zeros(0, dtype=np.int64)
    batch, _ = ProtobufBatchDecoder(order).decode(b"", nowhere, nowhere)
    text = pa.string()
    line = pa.struct(
        [
            pa.field("sku", text, nullable=False),
            pa.field(
                "counts", pa.list_(pa.field("item", pa.uint32(), nullable=False)), nullable=False
            ),
        ]
    )
    types = {name: batch.schema.field(name).type for name in batch.schema.names}
    assert types["id"] == pa.uint64()
    assert types["lines"] == pa.list_(pa.field("item", line, nullable=False))
    assert (types["by_name"].key_type, types["by_name"].item_type) == (text, line)
    assert types["at"] == pa.timestamp("us", tz="UTC")
    assert types["took"] == pa.duration("us")
    assert types["weight"] == pa.float64()
    assert types["names"].value_type == types["status"] == text
    assert types["any"].field("value").type == pa.binary()
    assert types["nothing"] == pa.struct([])
    fine, _ = ProtobufBatchDecoder(order, ["at", "took"], unit="ns").decode(b"", nowhere, nowhere)
    assert fine.schema.types == [pa.timestamp("ns", tz="UTC"), pa.duration("ns")]


def test_what_is_not_set_is_null_or_a_default(order: Any, oracle: Any) -> None:
    [found], wrongs = decoded(oracle, order, [b""])
    assert wrongs == [Fault.OK]
    defaults = {"id": 0, "status": "NEW", "lines": [], "by_name": {}, "names": [], "numbers": []}
    assert found == {name: defaults.get(name) for name in found}


def test_messages_that_come_twice_are_merged_and_numbers_replaced(order: Any, oracle: Any) -> None:
    first = order(id=1, address={"city": "a", "lines": [{"sku": "x"}]}, note="long text")
    second = order(id=2, address={"floor": 3, "lines": [{"sku": "y"}]}, note="s")
    payload = first.SerializeToString() + second.SerializeToString()
    [found], _ = decoded(oracle, order, [payload], ["id", "address", "note"])
    lines = [{"sku": "x", "counts": []}, {"sku": "y", "counts": []}]
    assert found == {
        "id": 2,
        "address": {"city": "a", "lines": lines, "floor": 3},
        "note": "s",
    }


def test_the_last_member_of_a_oneof_is_the_one(order: Any, oracle: Any) -> None:
    invoice = order(invoice={"city": "a", "lines": [{"sku": "x", "counts": [1, 2]}]})
    card, other = order(card="c"), order(other=2)
    parts = [one.SerializeToString() for one in (invoice, card, other)]
    payloads = [
        b"".join(parts),
        b"".join(reversed(parts)),
        parts[0] + parts[1] + order(invoice={"floor": 1}).SerializeToString(),
        parts[0] + order(invoice={"floor": 1}).SerializeToString(),
        parts[0],
    ]
    columns = ["card", "invoice", "other"]
    found, _ = decoded(oracle, order, payloads, columns)
    lines = [{"sku": "x", "counts": [1, 2]}]
    assert [[name for name in columns if one[name] is not None] for one in found] == [
        ["other"],
        ["invoice"],
        ["invoice"],
        ["invoice"],
        ["invoice"],
    ]
    assert found[2]["invoice"] == {"city": "", "lines": [], "floor": 1}
    assert found[3]["invoice"] == {"city": "a", "lines": lines, "floor": 1}
    assert found[4]["invoice"] == {"city": "a", "lines": lines, "floor": None}
    alone, _ = decoded(oracle, order, payloads, ["card"])
    assert [one["card"] for one in alone] == [None] * 5


def test_a_key_that_comes_twice_keeps_its_last_value_whole(order: Any, oracle: Any) -> None:
    first = order(by_name={"a": {"sku": "x", "counts": [1]}})
    second = order(by_name={"a": {"sku": "y"}, "b": {}})
    payload = first.SerializeToString() + second.SerializeToString()
    found, _ = decoded(oracle, order, [payload, first.SerializeToString()], ["by_name"])
    assert found[0]["by_name"] == {
        "a": {"sku": "y", "counts": []},
        "b": {"sku": "", "counts": []},
    }
    assert found[1]["by_name"] == {"a": {"sku": "x", "counts": [1]}}


def test_times_and_wrappers_are_values(order: Any, oracle: Any) -> None:
    one = order(
        at={"seconds": -1, "nanos": 999_999_999},
        took={"seconds": -1, "nanos": -1999},
        weight={"value": 0},
        names=[{"value": ""}, {"value": "n"}],
    )
    far = order(at={"seconds": 253_402_300_800})
    mixed = order(took={"seconds": 1, "nanos": -1})
    payloads = [each.SerializeToString() for each in (one, far, mixed)]
    found, wrongs = decoded(oracle, order, payloads, ["at", "took", "weight", "names"])
    assert wrongs == [Fault.OK, Fault.TIME_RANGE, Fault.TIME_RANGE]
    before = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=datetime.UTC)
    assert found[0]["at"] == before
    assert found[0]["took"] == datetime.timedelta(seconds=-1, microseconds=-1)
    assert (found[0]["weight"], found[0]["names"]) == (bytes(8), ["", "n"])
    fine = ProtobufBatchDecoder(order, ["at"], unit="ns")
    late = order(at={"seconds": 10**10}).SerializeToString()  # beyond 2262
    batch, errors = fine.decode(*oracle.joined([payloads[0], late]))
    assert batch["at"].cast(pa.int64()).to_pylist() == [-1, None]
    assert [Fault(code) for code in errors] == [Fault.OK, Fault.TIME_RANGE]


def test_proto2_has_groups_closed_enums_and_strings_that_are_no_text(row: Any, oracle: Any) -> None:
    payloads = [
        b"\x13\x08\x05\x14",
        b"\x18\x07",  # not of the enum: as if it were not there, and there is no default in Arrow
        b"\x22\x03\x01\x07\x00",
        b"\x2a\x04\x08\x01\x10\x07",  # an entry with something unknown is unknown
        b"\x0a\x01\xff",
        b"\x13\x08\x05",
        b"\x13\x08\x05\x1c",
        b"\x14",
    ]
    found, wrongs = decoded(oracle, row, payloads)
    assert wrongs[:4] == [Fault.OK] * 4
    assert wrongs[4:] == [Fault.UTF8, *[Fault.GROUP] * 3]
    assert found[0]["part"] == {"n": 5}
    assert found[1]["kind"] is None
    assert found[2]["kinds"] == ["B", "A"]
    assert found[3]["by_number"] == {}


def test_unknown_groups_are_stepped_over_as_deep_as_upb_does(row: Any, oracle: Any) -> None:
    payloads = [b"\x93\x01" * depth + b"\x94\x01" * depth for depth in (1, 100, 101, 120_000)]
    _, wrongs = decoded(oracle, row, payloads)
    assert wrongs == [
        Fault.OK,
        Fault.OK,
        Fault.NESTING,
        Fault.NESTING,
    ]


def test_limits_cost_the_row_and_not_its_neighbours(order: Any, oracle: Any) -> None:
    lines = order(numbers=[1] * 50).SerializeToString()
    payloads = [lines, order(id=7).SerializeToString(), order(note="x" * 100).SerializeToString()]
    limits = PayloadLimits(value_bytes_max=80, items_max=49)
    batch, errors = ProtobufBatchDecoder(order, ["id"], limits=limits).decode(
        *oracle.joined(payloads)
    )
    assert [Fault(code) for code in errors] == [
        Fault.OK,
        Fault.OK,
        Fault.TOO_LARGE,
    ]
    both = ProtobufBatchDecoder(order, ["id", "numbers"], limits=limits)
    batch, errors = both.decode(*oracle.joined(payloads))
    assert [Fault(code) for code in errors] == [
        Fault.ITEMS,
        Fault.OK,
        Fault.TOO_LARGE,
    ]
    assert batch["id"].to_pylist() == [None, 7, None]
    small = ProtobufBatchDecoder(order, limits=PayloadLimits(output_bytes_max=1 << 16))
    with pytest.raises(OutputTooLargeError, match="fewer at a time"):
        small.decode(*oracle.joined([order(lines=[{}] * 5000).SerializeToString()]))


def test_many_rows_of_all_sizes_make_room_for_themselves(order: Any, oracle: Any) -> None:
    made = [
        order(
            id=number,
            note="n" * (number * 37 % 500),
            lines=[{"sku": "s" * (number % 7), "counts": range(number % 5)}] * (number % 11),
            by_name={str(key): {"counts": [key]} for key in range(number % 4)},
        )
        for number in range(3000)
    ]
    made += [order(lines=[{"sku": "x" * 1000}] * 500)] * 3
    payloads = [one.SerializeToString() for one in made]
    payloads[100] = payloads[200] = b"\xff"
    found, wrongs = decoded(oracle, order, payloads)
    assert [place for place, wrong in enumerate(wrongs) if wrong] == [100, 200]
    for place in (*range(99, 130), 199, 201, 2999, 3000, 3002):
        if not wrongs[place]:
            assert found[place] == oracle.read(order, payloads[place])


def test_columns_come_in_the_order_asked_for_and_must_be_there(order: Any) -> None:
    nowhere = np.zeros(0, dtype=np.int64)
    batch, _ = ProtobufBatchDecoder(order, ["note", "id"]).decode(b"", nowhere, nowhere)
    assert batch.schema.names == ["note", "id"]
    with pytest.raises(ValueError, match="no column 'colour'"):
        ProtobufBatchDecoder(order, ["colour"])
    with pytest.raises(ValueError, match="twice"):
        ProtobufBatchDecoder(order, ["id", "id"])
