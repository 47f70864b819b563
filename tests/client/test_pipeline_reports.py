"""Reports of streaming queries: read as they were written, and stale when they stop coming."""

import pytest

from penstock.client.pipeline_reports import INTERVAL_MS_MIN, PipelineReport, read_report
from penstock.model import Millis


def test_a_report_is_read_as_it_was_written() -> None:
    report = PipelineReport("q", "r", 5, "orders", batch=2**60, lag=2**60, input_rate=1.5)
    key, value = report.record()
    assert key == b"q"
    assert read_report(value) == report
    document = report.document(Millis(6))
    assert (document["batch"], document["lag"], document["updated"]) == (
        str(2**60), str(2**60), "5",
    )  # fmt: skip


@pytest.mark.parametrize("value", [None, b"", b"{}", b"[]", b'{"id": 1}'])
def test_other_records_are_no_reports(value: bytes | None) -> None:
    assert read_report(value) is None


@pytest.mark.parametrize(
    ("state", "interval_ms", "silent_ms", "shown"),
    [
        ("running", 0, 3 * INTERVAL_MS_MIN, "running"),
        ("running", 0, 3 * INTERVAL_MS_MIN + 1, "stale"),
        ("running", 60_000, 180_000, "running"),
        ("running", 60_000, 180_001, "stale"),
        ("stopped", 0, 10**9, "stopped"),
        ("failed", 0, 10**9, "failed"),
    ],
)
def test_a_query_is_stale_after_three_silent_triggers(
    state: str, interval_ms: int, silent_ms: int, shown: str
) -> None:
    report = PipelineReport("q", "r", 0, state=state, interval_ms=interval_ms)  # type: ignore[arg-type]  # of the table
    assert report.state_at(Millis(silent_ms)) == shown
