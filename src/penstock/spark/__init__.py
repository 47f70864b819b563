"""Pipelines on Spark: the log as a PySpark source and sink, and the pieces to build with.

The names below are what users call; each is loaded when it is first asked for, so that Spark's
workers load no more than they need.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.spark.changelog import Changelog, Output
    from penstock.spark.event_time import (
        Timed,
        join_within,
        late_events,
        sessions,
        sliding,
        tumbling,
    )
    from penstock.spark.exactly_once_sink import exactly_once, in_transaction, record_batches
    from penstock.spark.lag import offsets_behind
    from penstock.spark.partial_aggregates import count, greatest, least, total
    from penstock.spark.quarantine_rows import split_quarantine, write_quarantine
    from penstock.spark.registry_functions import from_registry, to_registry
    from penstock.spark.replay import Replay
    from penstock.spark.sql_views import views
    from penstock.spark.tables import join_table, table

# Never the name of a module here: importing that would put the module in the name's place.
_EXPORTS: Final = {
    "Changelog": "penstock.spark.changelog",
    "Output": "penstock.spark.changelog",
    "Replay": "penstock.spark.replay",
    "Timed": "penstock.spark.event_time",
    "count": "penstock.spark.partial_aggregates",
    "exactly_once": "penstock.spark.exactly_once_sink",
    "from_registry": "penstock.spark.registry_functions",
    "greatest": "penstock.spark.partial_aggregates",
    "in_transaction": "penstock.spark.exactly_once_sink",
    "join_table": "penstock.spark.tables",
    "join_within": "penstock.spark.event_time",
    "late_events": "penstock.spark.event_time",
    "least": "penstock.spark.partial_aggregates",
    "offsets_behind": "penstock.spark.lag",
    "record_batches": "penstock.spark.exactly_once_sink",
    "sessions": "penstock.spark.event_time",
    "sliding": "penstock.spark.event_time",
    "split_quarantine": "penstock.spark.quarantine_rows",
    "table": "penstock.spark.tables",
    "to_registry": "penstock.spark.registry_functions",
    "total": "penstock.spark.partial_aggregates",
    "tumbling": "penstock.spark.event_time",
    "views": "penstock.spark.sql_views",
    "write_quarantine": "penstock.spark.quarantine_rows",
}

__all__ = [
    "Changelog",
    "Output",
    "Replay",
    "Timed",
    "count",
    "exactly_once",
    "from_registry",
    "greatest",
    "in_transaction",
    "join_table",
    "join_within",
    "late_events",
    "least",
    "offsets_behind",
    "record_batches",
    "sessions",
    "sliding",
    "split_quarantine",
    "table",
    "to_registry",
    "total",
    "tumbling",
    "views",
    "write_quarantine",
]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"penstock.spark has no {name}")
    return getattr(import_module(_EXPORTS[name]), name)
