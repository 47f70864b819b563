"""The metrics of lag, read from the last round when the process is scraped."""

from collections.abc import Iterator

from penstock.metrics import http_rows as rows
from penstock.metrics.text_format import Family
from penstock.model import Millis
from penstock.monitor.group_lag import GroupLag


def lag_families(lag: GroupLag, now: Millis) -> Iterator[Family]:
    """Of as many pairs of group and topic as may have series; the others are counted."""
    shown = list(lag.by_group_and_topic.items())[: rows.LAG_SERIES_MAX]
    yield rows.GROUP_LAG_RECORDS, [(key, each.records) for key, each in shown]
    yield rows.GROUP_LAG_SECONDS, [(key, round(each.seconds(now), 3)) for key, each in shown]
    yield rows.LAG_NOT_SHOWN, [((), len(lag.by_group_and_topic) - len(shown))]
    yield rows.LAG_UPDATED, [((), lag.updated_at / 1000)]
