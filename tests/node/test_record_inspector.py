"""Compiled kernels find the same in large batches as the Python decoder."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import Malformed
from penstock.model import Millis, Offset
from penstock.node import record_inspector
from penstock.node.record_inspector import VECTOR_RECORDS_LEAST, Inspector, PlainInspector
from penstock.protocol.compression import Codec
from penstock.protocol.records import Record, build_batch

many = st.lists(
    st.tuples(st.none() | st.binary(max_size=3), st.integers(0, 1000)),
    min_size=VECTOR_RECORDS_LEAST,
    max_size=VECTOR_RECORDS_LEAST + 50,
)


@settings(deadline=None, max_examples=30)
@given(
    rows=many,
    codec=st.sampled_from(list(Codec)),
    earliest=st.none() | st.integers(0, 1000),
    latest=st.none() | st.integers(0, 1000),
)
def test_kernels_and_python_find_the_same(
    rows: list[tuple[bytes | None, int]], codec: Codec, earliest: int | None, latest: int | None
) -> None:
    records = [
        Record(Offset(index), Millis(timestamp), key, b"value", ())
        for index, (key, timestamp) in enumerate(rows)
    ]
    batch = bytearray(build_batch(records, codec=codec))
    bounds: dict[str, Any] = {
        "opened_bytes_max": 1 << 20,
        "earliest": None if earliest is None else Millis(earliest),
        "latest": None if latest is None else Millis(latest),
    }
    plain, vector = PlainInspector().inspect(batch, **bounds), Inspector().inspect(batch, **bounds)
    assert list(plain.unkeyed) == list(vector.unkeyed)
    assert list(plain.out_of_range) == list(vector.out_of_range)


def test_invalid_bytes_are_malformed_in_both() -> None:
    for count in (3, VECTOR_RECORDS_LEAST):
        batch = bytearray(build_batch([(b"k", b"v")] * count))
        batch[-2] ^= 0xFF
        with pytest.raises(Malformed):
            Inspector().inspect(batch, earliest=None, latest=None, opened_bytes_max=1 << 20)


@settings(deadline=None, max_examples=30)
@given(
    rows=many,
    codec=st.sampled_from(list(Codec)),
    timestamp=st.integers(0, 1001),
    start=st.integers(-5, 300),
    end=st.integers(0, 300),
)
def test_kernels_and_python_find_the_same_record_by_time(
    rows: list[tuple[bytes | None, int]], codec: Codec, timestamp: int, start: int, end: int
) -> None:
    records = [
        Record(Offset(index), Millis(time), key, b"value", ())
        for index, (key, time) in enumerate(rows)
    ]
    batch = memoryview(build_batch(records, codec=codec))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_inspector, "TIME_VECTOR_RECORDS_LEAST", VECTOR_RECORDS_LEAST)
        vector = Inspector().find_time(batch, Millis(timestamp), Offset(start), Offset(end))
    query = (batch, Millis(timestamp), Offset(start), Offset(end))
    assert PlainInspector().find_time(*query) == vector
