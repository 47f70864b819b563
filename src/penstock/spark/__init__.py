"""Pipelines on Spark: the log as a PySpark source and sink, and the pieces to build with.

The names below are what users call; each is loaded when it is first asked for, so that Spark's
workers load no more than they need.
"""

from typing import TYPE_CHECKING

from penstock.lazy import lazy_names

if TYPE_CHECKING:
    from penstock.spark.changelog import Changelog as Changelog
    from penstock.spark.changelog import Output as Output
    from penstock.spark.event_time import Timed as Timed
    from penstock.spark.event_time import join_within as join_within
    from penstock.spark.event_time import late_events as late_events
    from penstock.spark.event_time import sessions as sessions
    from penstock.spark.event_time import sliding as sliding
    from penstock.spark.event_time import tumbling as tumbling
    from penstock.spark.exactly_once_sink import exactly_once as exactly_once
    from penstock.spark.exactly_once_sink import in_transaction as in_transaction
    from penstock.spark.exactly_once_sink import record_batches as record_batches
    from penstock.spark.lag import offsets_behind as offsets_behind
    from penstock.spark.partial_aggregates import count as count
    from penstock.spark.partial_aggregates import greatest as greatest
    from penstock.spark.partial_aggregates import least as least
    from penstock.spark.partial_aggregates import total as total
    from penstock.spark.quarantine_rows import split_quarantine as split_quarantine
    from penstock.spark.quarantine_rows import write_quarantine as write_quarantine
    from penstock.spark.registry_functions import from_registry as from_registry
    from penstock.spark.registry_functions import to_registry as to_registry
    from penstock.spark.replay import Replay as Replay
    from penstock.spark.sql_views import views as views
    from penstock.spark.tables import join_table as join_table
    from penstock.spark.tables import table as table
else:
    __getattr__, __dir__ = lazy_names(__name__)
