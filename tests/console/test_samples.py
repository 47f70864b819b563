"""Rates and lag history from samples: bounded, and silent where nothing is known."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.console.samples.lag_history import LagHistory
from penstock.console.samples.throughput import SPAN_MS, Throughput
from penstock.console.time_buckets import bucket_edges, buckets_of
from penstock.model import Millis


def test_a_rate_is_over_the_last_samples() -> None:
    throughput = Throughput()
    throughput.add(Millis(0), {"orders": 100}, 1000)
    assert throughput.by_topic == {}
    throughput.add(Millis(5000), {"orders": 150, "new": 7}, 3000)
    assert throughput.by_topic == {"orders": 10.0}
    (point,) = throughput.history
    assert (point.records_in, point.bytes_in) == (10.0, 400.0)


def test_a_topic_that_was_created_again_has_no_rate() -> None:
    throughput = Throughput()
    throughput.add(Millis(0), {"orders": 100}, None)
    throughput.add(Millis(5000), {"orders": 3}, None)
    assert throughput.by_topic == {}
    assert throughput.history[-1].bytes_in is None


def test_nothing_is_averaged_over_a_time_without_samples() -> None:
    throughput = Throughput()
    throughput.add(Millis(0), {"orders": 0}, 0)
    throughput.add(Millis(10 * SPAN_MS), {"orders": 900}, 0)
    assert throughput.by_topic == {}
    assert throughput.history == ()


def test_the_history_of_lag_is_a_ring_for_each_group() -> None:
    history = LagHistory(points_max=3)
    for number in range(5):
        history.add(Millis(number), {"billing": (number, 0.0)})
    assert [point.records for point in history.of("billing")] == [2, 3, 4]
    history.add(Millis(6), {"mail": (1, 1.5)})
    assert history.of("billing") == ()
    assert history.of("mail")[0].seconds == 1.5


@given(st.lists(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 9)), max_size=9))
def test_there_are_never_more_groups_than_allowed(rounds: list[dict[str, int]]) -> None:
    history = LagHistory(points_max=2, groups_max=3)
    for number, lags in enumerate(rounds):
        history.add(Millis(number), {group: (lag, 0.0) for group, lag in lags.items()})
        known = [group for group in "abcdef" if history.of(group)]
        assert len(known) == min(3, len(lags))
        assert all(len(history.of(group)) <= 2 for group in known)


@given(st.integers(0, 10**13), st.integers(1, 10**10), st.integers(1, 200))
def test_buckets_cover_the_span_without_gaps(began: int, span: int, count: int) -> None:
    edges = bucket_edges(began, began + span, count)
    assert edges[0] == began
    assert edges[-1] == began + span
    assert len(edges) == min(count, span) + 1
    assert all(before < after for before, after in pairwise(edges))


def test_a_bucket_whose_offsets_go_back_is_empty() -> None:
    rows = buckets_of([0, 10, 20, 30], [5, 9, 8, 12])
    assert [row["records"] for row in rows] == ["4", "0", "4"]
    assert rows[0] == {"from": "0", "until": "10", "records": "4"}
