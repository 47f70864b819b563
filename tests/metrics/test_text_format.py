"""Prometheus' text format."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from penstock.metrics.histogram import Histogram, sum_of
from penstock.metrics.row import SECONDS, MetricRow, MetricType, Source
from penstock.metrics.text_format import write_families

GAUGE = MetricRow(Source.BROKER, MetricType.GAUGE, "size_bytes", "Size.", ("topic",))
HISTOGRAM = MetricRow(Source.BROKER, MetricType.HISTOGRAM, "seconds", "Time.", (), SECONDS)


@given(st.text(), st.integers(0, 1 << 60) | st.floats(0, 1e12))
def test_prometheus_reads_any_label_and_number(label: str, value: float) -> None:
    label = label.replace("\r", "").replace("\x00", "")
    text = "".join(write_families([(GAUGE, [((label,), value)])]))
    (family,) = text_string_to_metric_families(text)
    (sample,) = family.samples
    assert sample.name == "penstock_size_bytes"
    assert sample.value == value
    if not any(character in label for character in "\x1c\x1d\x1e\x85\u2028\u2029\x0b\x0c"):
        assert sample.labels == {"topic": label}


@given(st.lists(st.floats(0, 20)))
def test_buckets_are_cumulative_and_end_at_the_count(values: list[float]) -> None:
    histogram = Histogram(SECONDS)
    for value in values:
        histogram.observe(value)
    text = "".join(write_families([(HISTOGRAM, [((), histogram)])]))
    (family,) = text_string_to_metric_families(text)
    buckets = [each for each in family.samples if each.name.endswith("_bucket")]
    for sample in buckets:
        assert sample.value == sum(value <= float(sample.labels["le"]) for value in values)
    assert all(first.value <= second.value for first, second in pairwise(buckets))
    assert buckets[-1].labels["le"] == "+Inf"
    assert buckets[-1].value == len(values)


def test_histograms_are_added() -> None:
    first, second = Histogram(SECONDS), Histogram(SECONDS)
    first.observe(0.2)
    second.observe(0.2)
    second.observe(99)
    both = sum_of([first, second], SECONDS)
    assert sum(both.counts) == 3
    assert both.counts[-1] == 1
    assert both.total == 99.4


def test_none_is_a_place_to_pause() -> None:
    assert list(write_families([None, None])) == ["", ""]
