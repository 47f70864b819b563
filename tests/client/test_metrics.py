"""Counts as Prometheus gets them."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from penstock.client.metrics import ClientMetrics
from penstock.serde.serde_stats import LATENCY_BOUNDS_S, SerdeStats


class Counted:
    """Something that reads or writes."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.stats = SerdeStats()


def test_the_latency_of_events_is_a_histogram_by_subject_and_direction() -> None:
    first, second, writer = Counted("a-value"), Counted("a-value"), Counted("b-value")
    first.stats.note(1, 3e-6)
    second.stats.note(1000, 5e-3)  # five microseconds each
    second.stats.note(1, 100.0)
    second.stats.note(0, 1.0)  # a batch of nulls: time without events
    writer.stats.note(1, 1e-6)
    collector = CollectorRegistry()
    collector.register(ClientMetrics(serializers=[writer], deserializers=[first, second]))
    text = generate_latest(collector).decode()
    read = 'direction="read",le="{}",subject="a-value"'
    for bound, count in (("1e-06", 0), ("4e-06", 1), ("8e-06", 1001), ("+Inf", 1002)):
        assert (
            f"penstock_client_serde_latency_seconds_bucket{{{read.format(bound)}}} {count}.0"
            in text
        )
    assert (
        'penstock_client_serde_latency_seconds_count{direction="write",subject="b-value"} 1.0'
        in text
    )
    assert 'penstock_client_serde_events_total{direction="read",subject="a-value"} 1002.0' in text


def test_quantiles_are_rounded_up_to_a_bound() -> None:
    stats = SerdeStats()
    assert stats.latency_s(0.99) == 0
    stats.note(98, 98 * 5e-6)
    stats.note(2, 2 * 20e-6)
    assert stats.latency_s(0.5) == pytest.approx(8e-6)
    assert stats.latency_s(0.99) == pytest.approx(30e-6)
    stats.note(100, 100 * 2 * LATENCY_BOUNDS_S[-1])
    assert stats.latency_s(0.99) == float("inf")
