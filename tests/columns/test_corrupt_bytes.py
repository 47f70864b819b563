"""Bytes gone wrong behind a true checksum: Malformed, or the records that the plain reader sees."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.columns.open_batches import open_batches
from penstock.columns.record_columns import RecordColumns
from penstock.errors import Malformed
from penstock.model import Millis
from penstock.protocol.batch import HEADER_BYTES, read_header, seal, write_header
from penstock.protocol.compression import Codec, compress
from penstock.protocol.records import Record, build_batch, read_records

AsRecords = Callable[[RecordColumns], list[Record]]

SAMPLE = build_batch(
    [
        Record(0, 1000, b"key", b"value" * 30, (("name", b"content"), ("gone", None))),
        Record(1, 900, None, b""),
        Record(130, 1 << 40, b"", None, (("", b""),)),
    ],
    timestamp=Millis(1000),
)


def rebuilt(section: bytes, codec: Codec = Codec.NONE) -> bytearray:
    """The sample's header, fitted and sealed over other records."""
    packed = bytes(compress(codec, section))
    header = read_header(SAMPLE)
    batch = bytearray(HEADER_BYTES)
    fitted = header._replace(length=HEADER_BYTES - 12 + len(packed), attributes=int(codec))
    write_header(batch, 0, fitted)
    batch += packed
    seal(batch)
    return batch


def agree(batch: bytearray, as_records: AsRecords) -> None:
    """Both readers say the same of a batch."""
    try:
        expected = read_records(batch)
    except Malformed as wrong:
        if "UTF-8" in wrong.reason:  # replaced, not refused, so what follows may be found
            with suppress(Malformed):
                open_batches(batch)
            return
        with pytest.raises(Malformed):
            open_batches(batch)
        return
    assert as_records(open_batches(batch)) == expected


@pytest.mark.parametrize("change", [0x01, 0x02, 0x40, 0x80, 0xFF])
def test_every_changed_byte_of_a_record(change: int, as_records: AsRecords) -> None:
    section = bytes(SAMPLE[HEADER_BYTES:])
    for position in range(len(section)):
        changed = bytearray(section)
        changed[position] ^= change
        agree(rebuilt(bytes(changed)), as_records)


def test_every_truncation_of_the_records(as_records: AsRecords) -> None:
    section = bytes(SAMPLE[HEADER_BYTES:])
    for size in range(len(section)):
        agree(rebuilt(section[:size]), as_records)


def test_every_changed_byte_of_a_batch_without_a_true_checksum() -> None:
    for position in range(len(SAMPLE)):
        changed = bytearray(SAMPLE)
        changed[position] ^= 0x81
        try:
            columns = open_batches(changed)
        except Malformed:
            continue
        outside_checksum = position < 16  # base offset, length, leader epoch
        assert outside_checksum, f"byte {position} was changed and not detected"
        assert len(columns) in (0, 3)  # a longer length is a batch cut off


@given(
    start=st.integers(0, 400),
    patch=st.binary(min_size=1, max_size=12),
    removed=st.integers(0, 12),
    codec=st.sampled_from(Codec),
)
@settings(deadline=None, max_examples=400)
def test_any_patch_of_the_records(
    start: int, patch: bytes, removed: int, codec: Codec, as_records: AsRecords
) -> None:
    section = bytes(SAMPLE[HEADER_BYTES:])
    start %= len(section)
    agree(rebuilt(section[:start] + patch + section[start + removed :], codec), as_records)


@given(position=st.integers(0, HEADER_BYTES - 1), byte=st.integers(0, 255))
@settings(deadline=None, max_examples=300)
def test_any_header_under_a_true_checksum_is_malformed_or_opens(position: int, byte: int) -> None:
    changed = bytearray(SAMPLE)
    changed[position] = byte
    try:
        seal(changed)
        columns = open_batches(changed)
    except Malformed:
        return
    assert len(columns) in (0, 3)


@given(junk=st.binary(max_size=200))
@settings(deadline=None, max_examples=200)
def test_rubbish_behind_a_good_batch_is_malformed_or_left(junk: bytes) -> None:
    try:
        reached = open_batches(SAMPLE + junk).end_position
    except Malformed as wrong:
        reached = wrong.position
    assert reached == len(SAMPLE)


@pytest.mark.slow
def test_no_kernel_reads_outside_its_arrays(tmp_path: Path) -> None:
    """All of the above with every index checked: one outside is an IndexError, not Malformed."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", __file__, "-q", "-m", "not slow"],
        env={**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
