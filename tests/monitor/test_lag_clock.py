"""Lag in seconds from samples of the end offset."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.model import Millis, Offset
from penstock.monitor.lag_clock import SAMPLES_MAX, OffsetSamples, age_s

SAMPLE_MS = 5000


def sampled(*ends: int) -> OffsetSamples:
    samples = OffsetSamples()
    for number, end in enumerate(ends):
        samples.add(Offset(end), Millis(number * SAMPLE_MS))
    return samples


def test_an_offset_between_two_samples_is_interpolated() -> None:
    samples = sampled(0, 100)
    assert samples.written_at(Offset(49)) == 2500
    assert samples.written_at(Offset(99)) == 5000


def test_a_record_after_a_quiet_time_is_as_old_as_its_own_interval() -> None:
    samples = sampled(10, 10, 10, 10, 11)
    assert samples.written_at(Offset(10)) == 4 * SAMPLE_MS
    assert age_s(Millis(4 * SAMPLE_MS), Millis(25_000)) == 5


def test_what_is_below_all_samples_is_unknown() -> None:
    assert sampled(10, 20).written_at(Offset(9)) is None


def test_an_end_that_moved_back_starts_over() -> None:
    samples = sampled(100, 200, 5)
    assert samples.written_at(Offset(4)) is None


@given(st.lists(st.integers(0, 50), min_size=2, max_size=3 * SAMPLES_MAX))
def test_an_offset_is_never_placed_outside_of_what_was_seen(steps: list[int]) -> None:
    samples, end, ends = OffsetSamples(), 0, []
    for number, step in enumerate(steps):
        end += step
        ends.append(end)
        samples.add(Offset(end), Millis(number * SAMPLE_MS))
    for offset in range(ends[0], end, max(1, end // 20)):
        appended = next(number for number, each in enumerate(ends) if each > offset)
        placed = samples.written_at(Offset(offset))
        assert placed is not None
        assert placed <= appended * SAMPLE_MS, "never newer than the sample that shows it"
