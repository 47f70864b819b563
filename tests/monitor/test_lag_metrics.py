"""The series of lag, and their cap."""

import pytest

from penstock.link.aio import AsyncCluster
from penstock.metrics import http_rows as rows
from penstock.model import Millis
from penstock.monitor.group_lag import GroupLag, Lag
from penstock.monitor.lag_metrics import lag_families


def test_series_of_lag_are_capped_and_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "LAG_SERIES_MAX", 2)
    lag = GroupLag(AsyncCluster("127.0.0.1:1"), lambda: Millis(0))
    lag.by_group_and_topic = {("g", f"t{number}"): Lag(5, Millis(1000)) for number in range(7)}
    families = dict(lag_families(lag, Millis(4000)))
    assert families[rows.GROUP_LAG_RECORDS] == [(("g", "t0"), 5), (("g", "t1"), 5)]
    assert families[rows.GROUP_LAG_SECONDS] == [(("g", "t0"), 3.0), (("g", "t1"), 3.0)]
    assert families[rows.LAG_NOT_SHOWN] == [((), 5)]
