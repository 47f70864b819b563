"""Pipelines on Spark: topics as a PySpark source and sink, and building blocks for pipelines.

    from penstock.spark import WriteRequest, exactly_once, session

session, activate                    a Spark session that finds `format("penstock")`
WriteRequest, exactly_once           frames into topics, each micro-batch as one transaction
record_batches, in_transaction, batch_name     the same for other layouts, and in several steps
tumbling, sliding, sessions, join_within, late_events     event time
Changelog, Output, count, total, minimum, maximum         state in a compacted topic
table, join_table, views             topics as tables and in SQL
from_registry, to_registry           framed values in any column
split_quarantine, write_quarantine   records that cannot be decoded
offsets_behind, Replay               lag, and reading again between two bounds
report_pipelines                     progress of queries for the console

Names are imported when they are first used, so that Spark's workers load only what they need.
"""

from typing import TYPE_CHECKING

from penstock.lazy import lazy_names

if TYPE_CHECKING:
    from penstock.model import TopicPartition as TopicPartition
    from penstock.spark.aggregates import StateAggregate as StateAggregate
    from penstock.spark.aggregates import count as count
    from penstock.spark.aggregates import maximum as maximum
    from penstock.spark.aggregates import minimum as minimum
    from penstock.spark.aggregates import total as total
    from penstock.spark.batch_transaction import BatchName as BatchName
    from penstock.spark.batch_transaction import BatchOutcome as BatchOutcome
    from penstock.spark.batch_transaction import SupersededError as SupersededError
    from penstock.spark.changelog import Changelog as Changelog
    from penstock.spark.changelog import Output as Output
    from penstock.spark.changelog import StatefulQuery as StatefulQuery
    from penstock.spark.decode_rows import UnreadableRecordError as UnreadableRecordError
    from penstock.spark.event_time import TimedStream as TimedStream
    from penstock.spark.event_time import join_within as join_within
    from penstock.spark.event_time import sessions as sessions
    from penstock.spark.event_time import sliding as sliding
    from penstock.spark.event_time import tumbling as tumbling
    from penstock.spark.exactly_once_sink import TransactionalBatch as TransactionalBatch
    from penstock.spark.exactly_once_sink import batch_name as batch_name
    from penstock.spark.exactly_once_sink import exactly_once as exactly_once
    from penstock.spark.exactly_once_sink import in_transaction as in_transaction
    from penstock.spark.exactly_once_sink import record_batches as record_batches
    from penstock.spark.lag import offsets_behind as offsets_behind
    from penstock.spark.late_sink import LateEvents as LateEvents
    from penstock.spark.late_sink import late_events as late_events
    from penstock.spark.pipeline_listener import report_pipelines as report_pipelines
    from penstock.spark.quarantine_rows import split_quarantine as split_quarantine
    from penstock.spark.quarantine_rows import write_quarantine as write_quarantine
    from penstock.spark.registry_functions import from_registry as from_registry
    from penstock.spark.registry_functions import to_registry as to_registry
    from penstock.spark.replay import ParquetTarget as ParquetTarget
    from penstock.spark.replay import Replay as Replay
    from penstock.spark.replay import ReplayBounds as ReplayBounds
    from penstock.spark.replay import ReplayProgress as ReplayProgress
    from penstock.spark.replay import ReplaySource as ReplaySource
    from penstock.spark.replay import TopicTarget as TopicTarget
    from penstock.spark.spark_session import activate as activate
    from penstock.spark.spark_session import session as session
    from penstock.spark.sql_views import views as views
    from penstock.spark.tables import join_table as join_table
    from penstock.spark.tables import table as table
    from penstock.spark.task_failures import WriteError as WriteError
    from penstock.spark.write_options import WriteRequest as WriteRequest
else:
    __getattr__, __dir__ = lazy_names(__name__)
