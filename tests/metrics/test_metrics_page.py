"""docs/metrics.md says what the rows say, and the rows keep Prometheus' rules."""

import re
from collections import Counter
from pathlib import Path

import pytest

from penstock.metrics.metrics_page import ALL_ROWS, metrics_page
from penstock.metrics.row import MetricRow, MetricType

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
CHOSEN_BY_CLIENTS = {"client", "client_id", "host", "key", "principal", "user", "transactional_id"}


def test_the_page_of_metrics_is_current(request: pytest.FixtureRequest) -> None:
    page = metrics_page()
    if request.config.getoption("--rewrite"):
        PAGE.write_text(page)
    assert PAGE.read_text() == page, "run: pytest tests/metrics --rewrite"


def test_no_name_is_used_twice() -> None:
    assert [
        name for name, count in Counter(row.name for row in ALL_ROWS).items() if count > 1
    ] == []


@pytest.mark.parametrize("row", ALL_ROWS, ids=lambda row: row.short_name)
def test_a_row_keeps_the_rules_of_prometheus(row: MetricRow) -> None:
    assert re.fullmatch(r"penstock_[a-z][a-z0-9_]+", row.name)
    assert row.name.endswith("_total") == (row.kind is MetricType.COUNTER)
    assert row.help.endswith(".")
    assert not re.search(r"_(ms|millis|kb|mb|percent)(_|$)", row.name), "base units only"
    assert not CHOSEN_BY_CLIENTS.intersection(row.labels)
