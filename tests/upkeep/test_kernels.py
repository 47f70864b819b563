"""No bytes crash the compiled loops of compaction."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import Malformed
from penstock.model import Millis, Offset
from penstock.protocol.batch import HEADER_BYTES, seal
from penstock.protocol.records import Record, build_batch

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
def test_corrupt_records_with_a_valid_checksum_are_refused_or_stay_readable(
    new_compacted: Any, changes: list[tuple[int, int]]
) -> None:
    corrupt = bytearray(BATCH)
    for position, byte in changes:
        corrupt[position] = byte
    seal(corrupt)
    compacted = new_compacted()
    compacted.segment(0, corrupt, build_batch([(b"b", b"3")], base_offset=Offset(5)))
    before = {path.name: path.read_bytes() for path in compacted.folder.iterdir()}
    try:
        compacted.clean()
    except Malformed:
        assert {path.name: path.read_bytes() for path in compacted.folder.iterdir()} == before
