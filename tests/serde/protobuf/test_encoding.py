"""Arrow batches to payloads: what upb writes for the same message, and nothing made up."""

import datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.columns.protobuf.read_program import ProtobufFault as Fault
from penstock.schemas.protobuf import parse
from penstock.serde.protobuf.batch import ProtobufBatchDecoder, ProtobufBatchEncoder
from penstock.serde.protobuf.event import MessageTypes

SEEDS = st.integers(0, 2**32)
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
}
message Tree { optional string name = 1; repeated Tree leaves = 2; }
enum Status { NEW = 0; PAID = 1; }
"""


@pytest.fixture(scope="module")
def order() -> Any:
    return MessageTypes(parse(SHOP)).named("shop.Order")


def contents(encoded: tuple[Any, Any, Any]) -> list[bytes]:
    buffer, offsets, _ = encoded
    whole = buffer.tobytes()
    return [whole[a:b] for a, b in pairwise(offsets)]


@given(seed=SEEDS)
@settings(max_examples=100, deadline=None)
def test_what_was_read_is_written_so_that_upb_reads_the_same(seed: int, oracle: Any) -> None:
    maker = oracle.maker(seed)
    message_type = maker.message_type()
    payloads = [maker.payload(message_type.DESCRIPTOR) for _ in range(24)]
    sound = [one for one in payloads if oracle.read(message_type, one) is not None]
    batch, errors = ProtobufBatchDecoder(message_type).decode(*oracle.joined(sound))
    assert not errors.any()
    encoded = ProtobufBatchEncoder(message_type).encode(batch, b"p")
    for payload, again, code in zip(sound, contents(encoded), encoded[2], strict=True):
        wanted = oracle.read(message_type, payload)
        if code == Fault.NULL:  # required, and not there: upb reads such a thing, and writes none
            assert not message_type.FromString(payload).IsInitialized()
            assert again == b""
            continue
        assert code == Fault.OK
        assert again[:1] == b"p"
        assert oracle.read(message_type, again[1:]) == wanted
        if not oracle.has_maps(message_type.DESCRIPTOR):  # upb's own order of entries is any
            known = message_type.FromString(payload)
            known.DiscardUnknownFields()
            if not oracle.loses(known):
                assert again[1:] == known.SerializePartialToString()


def test_nulls_are_not_set_and_what_is_made_up_elsewhere_is_wrong(order: Any) -> None:
    rows: list[dict[str, Any]] = [
        {"id": 1},
        {"id": None},
        {"id": 2, "card": "c", "cash": 1},
        {"id": 3, "status": "LOST"},
        {"id": 4, "tags": ["a", None]},
        {"id": 5, "status": "1", "cash": 0},
        {"id": 6, "states": [("k", None)]},
        {"id": 7, "states": [("k", "PAID")], "tags": []},
        {"id": 8, "status": "7"},
        {"id": 9, "at": datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC)},
    ]
    columns: list[tuple[str, pa.DataType]] = [
        ("id", pa.int64()),
        ("card", pa.string()),
        ("cash", pa.int32()),
        ("status", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("states", pa.map_(pa.string(), pa.string())),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
    batch = pa.RecordBatch.from_pylist(rows, pa.schema(columns))
    encoded = ProtobufBatchEncoder(order).encode(batch)
    wrong = {
        1: Fault.NULL,
        2: Fault.MEMBERS,
        3: Fault.SYMBOL,
        4: Fault.NULL,
        6: Fault.NULL,
    }
    wrong[8] = Fault.SYMBOL
    assert {row: Fault(code) for row, code in enumerate(encoded[2]) if code} == wrong
    read = [order.FromString(one) for one in contents(encoded)]
    assert read[0] == order(id=1)
    assert read[5] == order(id=5, status=1, cash=0)
    assert read[7] == order(id=7, states={"k": 1})
    assert read[9].at.ToDatetime(datetime.UTC).year == 9999


def test_enums_may_be_numbers_and_times_finer(order: Any) -> None:
    at = pa.array([1_000_000_001, None], pa.timestamp("ns", tz="UTC"))
    columns = {"id": pa.array([1, 2]), "status": pa.array([1, 0]), "at": at}
    encoded = ProtobufBatchEncoder(order).encode(pa.RecordBatch.from_pydict(columns))
    first, second = (order.FromString(one) for one in contents(encoded))
    assert (first.status, first.at.seconds, first.at.nanos) == (1, 1, 1)
    assert (second.HasField("status"), second.HasField("at")) == (True, False)


def test_messages_that_contain_themselves_are_json_both_ways(order: Any) -> None:
    tree = {"name": "a", "leaves": [{"name": "b"}, {"leaves": [{"name": "c"}]}]}
    one = order(id=1, tree=tree)
    one.extra.update({"any": [1, "x", None]})
    payloads = [one.SerializeToString(), order(id=2).SerializeToString(), b"\x42\x01\x08"]
    ends = [len(payloads[0]), len(payloads[0]) + len(payloads[1])]
    batch, errors = ProtobufBatchDecoder(order, ["tree", "id", "extra"]).decode(
        b"".join(payloads), *_bounds(ends, len(b"".join(payloads)))
    )
    assert [Fault(code) for code in errors] == [
        Fault.OK,
        Fault.OK,
        Fault.UNFIT,
    ]
    assert batch["id"].to_pylist() == [1, 2, None]
    assert batch["extra"].to_pylist() == ['{"any": [1.0, "x", null]}', None, None]
    assert batch["tree"].to_pylist()[1:] == [None, None]
    encoded = ProtobufBatchEncoder(order).encode(batch.slice(0, 2), b"..")
    assert not encoded[2].any()
    assert [order.FromString(each[2:]) for each in contents(encoded)] == [one, order(id=2)]
    invalid = pa.RecordBatch.from_pydict({"id": [1], "tree": ["{"]})
    assert Fault(ProtobufBatchEncoder(order).encode(invalid)[2][0]) is Fault.UNFIT


def _bounds(ends: list[int], total: int) -> tuple[Any, Any]:
    return np.array([0, *ends]), np.array([*ends, total])


def test_columns_that_the_message_does_not_have_are_refused(order: Any) -> None:
    encoder = ProtobufBatchEncoder(order)
    with pytest.raises(ValueError, match="no field 'colour'"):
        encoder.encode(pa.RecordBatch.from_pydict({"id": [1], "colour": ["red"]}))
    with pytest.raises(ValueError, match="'id' does not fit"):
        encoder.encode(pa.RecordBatch.from_pydict({"id": ["x"]}))


def test_many_rows_and_large_ones_make_room_for_themselves(order: Any) -> None:
    texts = ["x" * (number * 997 % 70_000) for number in range(500)]
    batch = pa.RecordBatch.from_pydict({"id": list(range(500)), "card": texts})
    encoded = ProtobufBatchEncoder(order).encode(batch, b"\0")
    assert contents(encoded) == [
        b"\0" + order(id=row, card=text).SerializeToString() for row, text in enumerate(texts)
    ]
