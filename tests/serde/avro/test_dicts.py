"""Dicts are written by one walk over Python's objects, and as fastavro writes them one by one."""

import gc
import sys
import threading
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Context, Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.columns.avro.read_program import AvroFault as Fault
from penstock.columns.avro.run import encode_dicts
from penstock.columns.vm.payloads import PayloadLimits, PayloadsTooLargeError
from penstock.schemas.avro.tree import Array, Map, Record, Union
from penstock.schemas.avro.types import logical_type
from penstock.serde.avro.batch import AvroBatchEncoder
from penstock.serde.avro.compile_dicts import compile_dicts
from penstock.serde.avro.compile_write import has_wide_union
from penstock.serde.avro.event import AvroEventEncoder
from penstock.serde.avro.logical_types import decimal_of
from penstock.serde.avro.rows import AvroRowEncoder
from penstock.serde.event_codec import InvalidValueError

SEEDS = st.integers(0, 2**32)
PREFIX = b"\x00\x00\x00\x00\x07"
STRANGE: tuple[Any, ...] = (
    None,
    True,
    3,
    -(2**70),
    2**31,
    1.5,
    "text",
    "\ud800",
    b"b",
    [],
    (),
    {},
    {"x": 1},
)
ITEM = {"type": "record", "name": "Item", "fields": [{"name": "sku", "type": "string"}]}
NESTED = {
    "type": "record",
    "name": "Nested",
    "fields": [
        {"name": "items", "type": {"type": "array", "items": ITEM}},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "long"}}},
        {
            "name": "sum",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 2},
        },
    ],
}


def record_of(*types: Any) -> Any:
    fields = [{"name": f"f{index}", "type": kind} for index, kind in enumerate(types)]
    return {"type": "record", "name": "R", "fields": fields}


def payloads(result: Any) -> list[bytes]:
    buffer, offsets, _ = result
    return [buffer[start:end].tobytes() for start, end in pairwise(offsets)]


def single_payload(schema: Any, row: Any) -> bytes:
    """What a single event is; empty if it is refused."""
    try:
        return AvroEventEncoder(schema).encode(row)[0]
    except InvalidValueError:
        return b""


def pythonic(node: Any, value: Any) -> Any:
    """The value with decimals in the place of their bytes, and without the names of branches."""
    if isinstance(node, Union):
        if value is None:
            return None
        (inner,) = (one for one in node.branches if one.kind != "null")
        return pythonic(inner, value[1] if isinstance(value, tuple) else value)
    if isinstance(node, Record):
        return {field.name: pythonic(field.type, value[field.name]) for field in node.fields}
    if isinstance(node, Array):
        return [pythonic(node.items, one) for one in value]
    if isinstance(node, Map):
        return {key: pythonic(node.values, one) for key, one in value.items()}
    logical = logical_type(node)
    if decimal_of(node) is not None and logical is not None:
        number = int.from_bytes(value, "big", signed=True)
        return Decimal((number < 0, tuple(map(int, str(abs(number)))), -logical.scale))
    return value


def spoiled(value: Any, maker: Any) -> Any:
    """The value with something strange in it, somewhere."""
    chance = maker.random
    if isinstance(value, dict) and value and chance.random() < 0.8:
        key = chance.choice(list(value))
        if chance.random() < 0.2:
            return {name: one for name, one in value.items() if name != key}
        return value | {key: spoiled(value[key], maker)}
    if isinstance(value, list) and value and chance.random() < 0.8:
        at = chance.randrange(len(value))
        return [*value[:at], spoiled(value[at], maker), *value[at + 1 :]]
    return chance.choice(STRANGE)


@given(seed=SEEDS)
@example(seed=3771)  # a tuple: in a union fastavro takes it for a branch and its value
@settings(max_examples=150, deadline=None)
def test_random_rows_are_written_and_refused_as_fastavro_does(seed: int, oracle: Any) -> None:
    maker = oracle.maker(seed)
    schema = oracle.parse(maker.record())
    if has_wide_union(schema.root):
        return
    rows = [pythonic(schema.root, maker.value(schema.root)) for _ in range(6)]
    rows = [spoiled(row, maker) if maker.random.random() < 0.2 else row for row in rows]
    for row in rows:  # each by itself, or one that is not taken would send all the other way
        mine = AvroBatchEncoder(schema).encode_rows([row], PREFIX)
        theirs = AvroRowEncoder(schema).encode([row], PREFIX)
        assert (mine[2] > 0).tolist() == (theirs[2] > 0).tolist(), row
        assert payloads(mine) == payloads(theirs)
        assert single_payload(schema, row) == payloads(theirs)[0].removeprefix(PREFIX)


@given(seed=SEEDS)
@settings(max_examples=60, deadline=None)
def test_rows_that_fit_are_all_taken(seed: int, oracle: Any) -> None:
    maker = oracle.maker(seed)
    schema = oracle.parse(maker.record())
    if has_wide_union(schema.root):
        return
    rows = [pythonic(schema.root, maker.value(schema.root)) for _ in range(6)]
    result = encode_dicts(compile_dicts(schema.root), rows)
    assert result is not None
    assert not result.faults.any()


@pytest.mark.parametrize(
    ("kind", "value", "number"),
    [
        ({"type": "int", "logicalType": "date"}, date(1969, 12, 31), -1),
        ({"type": "int", "logicalType": "time-millis"}, time(0, 0, 1, 2999), 1002),
        ({"type": "long", "logicalType": "time-micros"}, time(23, 59, 59, 999_999), 86399999999),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC),
            -1,
        ),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            datetime(1970, 1, 1, 2, 0, 0, 7, tzinfo=timezone(timedelta(hours=2))),
            7,
        ),
        (
            {"type": "long", "logicalType": "local-timestamp-millis"},
            datetime(1970, 1, 1, 0, 0, 1),  # noqa: DTZ001 - a local time
            1000,
        ),
    ],
)
def test_dates_and_times_are_written_as_their_numbers(
    kind: Any, value: Any, number: int, oracle: Any
) -> None:
    schema = oracle.parse(record_of(kind))
    result = encode_dicts(compile_dicts(schema.root), [{"f0": value}, {"f0": number}])
    assert result is not None
    first, second = payloads((result.buffer, result.offsets, result.faults))
    assert first == second


@pytest.mark.parametrize(
    "text", ["0", "-0.01", "1E+3", "12345678901234567890123456789012345678.99"]
)
def test_a_decimal_takes_as_few_bytes_as_do(text: str, oracle: Any) -> None:
    schema = oracle.parse(NESTED)
    row = {"items": [], "tags": {}, "sum": Decimal(text)}
    number = int(Decimal(text).scaleb(2, Context(prec=60)))
    size = len(payloads(AvroBatchEncoder(schema).encode_rows([row]))[0]) - 3
    assert payloads(AvroBatchEncoder(schema).encode_rows([row])) == [
        bytes((0, 0, 2 * size)) + number.to_bytes(size, "big", signed=True)
    ]
    assert size == 1 or not -(1 << 8 * size - 9) <= number < 1 << 8 * size - 9


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("1.001", Fault.DECIMAL_RANGE),
        ("1E+40", Fault.DECIMAL_RANGE),
        ("NaN", Fault.UNFIT),
        ("Infinity", Fault.UNFIT),
        ("-sNaN", Fault.UNFIT),
    ],
)
def test_a_decimal_that_would_be_changed_is_wrong(text: str, wrong: Fault, oracle: Any) -> None:
    row = {"items": [], "tags": {}, "sum": Decimal(text)}
    result = AvroBatchEncoder(oracle.parse(NESTED)).encode_rows([row])
    assert result[2].tolist() == [wrong]


def test_nothing_is_kept_of_the_rows_whether_they_fit_or_not(oracle: Any) -> None:
    schema = oracle.parse(NESTED)
    item, tags, total = {"sku": "a"}, {"t": [1, 2]}, Decimal("1.50")
    items = [item, item]
    good = {"items": items, "tags": tags, "sum": total}
    bad = {"items": [item, {"sku": 1}], "tags": tags, "sum": total}
    wrong = {"items": items, "tags": tags, "sum": None}
    objects = (item, items, tags, tags["t"], total, good, bad, wrong)
    encoder = AvroBatchEncoder(schema)
    for rows in ([good], [wrong], [good, bad]):  # once before: converters cache what they need
        encoder.encode_rows(rows)
    gc.collect()
    before = [sys.getrefcount(each) for each in objects]
    for _ in range(50):
        for rows in ([good], [wrong], [good, bad]):
            encoder.encode_rows(rows)
    assert [sys.getrefcount(each) for each in objects] == before


def test_rows_that_another_thread_changes_never_crash(oracle: Any) -> None:
    schema = oracle.parse(NESTED)
    encoder = AvroBatchEncoder(schema)
    rows: list[Any] = []
    stopping = threading.Event()

    def change() -> None:
        while not stopping.is_set():
            items: list[Any] = [{"sku": "a" * 30} for _ in range(5)]
            row = {"items": items, "tags": {"t": [1, 2]}, "sum": Decimal("1.50")}
            rows[:] = [row] * 20
            items.clear()
            row.clear()
            rows.clear()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    changing = threading.Thread(target=change)
    changing.start()
    try:
        for _ in range(300):
            _, offsets, errors = encoder.encode_rows(list(rows))
            assert len(offsets) == len(errors) + 1
    finally:
        stopping.set()
        changing.join()
        sys.setswitchinterval(interval)


def test_many_and_large_dicts_make_the_output_grow_up_to_the_limit(oracle: Any) -> None:
    schema = oracle.parse(record_of("string", "bytes"))
    rows = [{"f0": "é" * 300_000, "f1": b""}, *({"f0": "y", "f1": bytearray(9)},) * 3000]
    result = AvroBatchEncoder(schema).encode_rows(rows)
    assert not result[2].any()
    assert payloads(result) == oracle.encoded(schema, rows)
    with pytest.raises(PayloadsTooLargeError):
        AvroBatchEncoder(schema, PayloadLimits(output_bytes_max=500_000)).encode_rows(rows)


def test_a_sequence_that_is_no_list_is_written_as_one(oracle: Any) -> None:
    schema = oracle.parse(record_of("int"))
    row = {"f0": 3}
    wanted = payloads(AvroBatchEncoder(schema).encode_rows([row, row]))
    assert payloads(AvroBatchEncoder(schema).encode_rows((row, row))) == wanted
    assert np.array_equal(AvroBatchEncoder(schema).encode_rows([])[1], [0])
