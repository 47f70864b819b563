"""Batches within the headroom of a segment never start a new one."""

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.log.files import OpenFiles
from penstock.log.segment import NO_HEADROOM, Segment
from penstock.log.segment_policy import RELATIVE_OFFSET_MAX, headroom_in, must_roll
from penstock.log.settings import LogSettings
from penstock.model import NO_TIMESTAMP, Millis, Offset
from tests.support.settings import default_log_settings

INTERVAL_BYTES = 100
SETTINGS = st.builds(
    LogSettings,
    segment_bytes=st.integers(200, 3_000),
    segment_ms=st.integers(0, 1_000).map(Millis),
    segment_jitter_ms=st.integers(0, 500).map(Millis),
    segment_index_bytes=st.integers(12, 400),
    index_interval_bytes=st.just(INTERVAL_BYTES),
)
BASE = 70


def a_segment(size_bytes: int, first_timestamp: int) -> Segment:
    """With as many index entries as a segment of its size can have."""
    entries = size_bytes // INTERVAL_BYTES
    segment = Segment(
        "orders-3",
        Offset(BASE),
        OpenFiles(2),
        size_bytes=size_bytes,
        offset_entries=entries,
        time_entries=entries,
        created_at=Millis(0),
    )
    segment._first_timestamp = Millis(first_timestamp)  # noqa: SLF001 - there is no file to read it from
    return segment


@settings(deadline=None, max_examples=300)
@given(
    SETTINGS,
    st.integers(1, 3_000),  # size of the segment
    st.integers(-1, 1_000),  # its first timestamp
    st.integers(61, 1_000),  # size of the batches
    st.integers(-2, 1_000) | st.integers(RELATIVE_OFFSET_MAX, RELATIVE_OFFSET_MAX + 3),
    st.integers(-1, 2_500),
    st.integers(0, 5_000),
)
def test_batches_within_the_headroom_do_not_roll(
    limits: LogSettings, used: int, first: int, size: int, offsets: int, newest: int, now: int
) -> None:
    segment = a_segment(used, first)
    headroom = headroom_in(segment, limits)
    end_offset = Offset(BASE + offsets)
    assume(used + size <= headroom.end_position)
    assume(end_offset <= headroom.end_offset)
    assume(0 <= newest <= headroom.last_timestamp)
    assert not must_roll(segment, limits, size, end_offset, Millis(newest), Millis(now))


def test_without_a_timestamp_there_is_no_headroom() -> None:
    assert headroom_in(a_segment(100, NO_TIMESTAMP), default_log_settings()) is NO_HEADROOM
