"""The compiled loops: the hash is the published one, and no bytes bring them down."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.columns import compaction_kernels
from penstock.columns.compiled import read_only
from penstock.errors import Malformed
from penstock.model import Millis, Offset
from penstock.protocol.batch import HEADER_BYTES, seal
from penstock.protocol.records import Record, build_batch


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, "a3817f04ba25a8e66df67214c7550293"),
        (1, "da87c1d86b99af44347659119b22fc45"),
        (7, "a1f1ebbed8dbc153c0b84aa61ff08239"),
        (8, "3b62a9ba6258f5610f83e264f31497b4"),
        (15, "5493e99933b0a8117e08ec0f97cfc3d9"),
    ],
)
def test_keys_are_hashed_with_siphash_2_4_of_128_bits(size: int, expected: str) -> None:
    seed = np.frombuffer(bytes(range(16)), dtype="<u8").copy()
    low, high = compaction_kernels.hash_key(read_only(bytes(range(16))), 0, size, seed)
    found = int(low).to_bytes(8, "little") + int(high).to_bytes(8, "little")
    assert found.hex() == expected


BATCH = build_batch(
    [
        Record(timestamp=5, key=b"a", value=b"1" * 70, headers=(("h", b"x"),)),
        Record(timestamp=900, key=b"", value=b""),
        Record(timestamp=2, key=None, value=None),
        Record(timestamp=7, key=b"a", value=None),
        Record(timestamp=8, key=b"b", value=b"2"),
    ],
    base_offset=Offset(0),
    timestamp=Millis(5),
)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(
        st.tuples(st.integers(HEADER_BYTES, len(BATCH) - 1), st.integers(0, 255)),
        min_size=1,
        max_size=3,
    )
)
def test_rotten_records_behind_a_true_checksum_are_told_or_kept_readable(
    compacted_anew: Any, changes: list[tuple[int, int]]
) -> None:
    rotten = bytearray(BATCH)
    for position, byte in changes:
        rotten[position] = byte
    seal(rotten)
    compacted = compacted_anew()
    compacted.segment(0, rotten, build_batch([(b"b", b"3")], base_offset=Offset(5)))
    before = {path.name: path.read_bytes() for path in compacted.folder.iterdir()}
    try:
        compacted.clean()
    except Malformed:
        assert {path.name: path.read_bytes() for path in compacted.folder.iterdir()} == before
