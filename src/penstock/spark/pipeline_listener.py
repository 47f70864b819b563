"""Streaming queries shown to the console: a listener that reports their progress to a topic.

    report_pipelines(spark, "127.0.0.1:9092")

Reports are for display only: one that cannot be written is a warning in the log and never ends a
query, and no micro-batch waits for one.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from penstock.client.pipeline_reports import (
    ERROR_CHARACTERS_MAX,
    INTERVAL_MS_MIN,
    TOPIC,
    PipelineReport,
)
from penstock.clock import wall_ms
from penstock.errors import Refused
from penstock.link.send_batches import send_batches
from penstock.model import Millis, TopicPartition
from penstock.protocol.records import Record, build_batch
from penstock.spark.changelog_topic import create_topic
from penstock.spark.connections import background_thread, client_properties, cluster_for
from penstock.spark.lag import AVERAGE, offsets_behind

logger: Final = logging.getLogger(__name__)

_QUERIES_MAX: Final = 1_000  # whose last report is kept; then all are forgotten
_reported: Final[WeakKeyDictionary[SparkSession, set[str]]] = WeakKeyDictionary()


def report_pipelines(
    spark: SparkSession, bootstrap: str, *, kafka: Mapping[str, str] | None = None
) -> StreamingQueryListener:
    """Report the streaming queries of a session from now on. `kafka` are properties of a client.

    The topic is created if it does not exist. `spark.streams.removeListener` ends the reports.
    """
    properties = client_properties(bootstrap, kafka or {})
    create_topic(properties, TOPIC, 1)
    listener = PipelineListener(properties)
    spark.streams.addListener(listener)
    return listener


def report_once(spark: SparkSession, bootstrap: str) -> None:
    """Report the queries of a session, unless they are reported to this cluster already."""
    known = _reported.setdefault(spark, set())
    if bootstrap not in known:
        report_pipelines(spark, bootstrap)
        known.add(bootstrap)


@dataclass(slots=True)
class QueryReports:
    """The last report of each query, and the next one. Pure."""

    _last: dict[str, PipelineReport] = field(default_factory=dict)

    def started(self, query_id: str, run_id: str, name: str | None, now: Millis) -> PipelineReport:
        """A query begins, maybe again."""
        return self._keep(PipelineReport(query_id, run_id, now, name))

    def progressed(self, progress: Mapping[str, Any], now: Millis) -> PipelineReport:
        """A trigger is done: Spark's progress as a document."""
        last = self._last.get(progress["id"])
        known = None if last is None or last.run_id != progress["runId"] else last
        interval_ms = 0 if known is None else now - known.updated
        lags = [offsets_behind(source) for source in progress.get("sources", ())]
        return self._keep(
            PipelineReport(
                progress["id"],
                progress["runId"],
                now,
                progress.get("name"),
                batch=progress.get("batchId"),
                input_rate=progress.get("inputRowsPerSecond"),
                processed_rate=progress.get("processedRowsPerSecond"),
                watermark=(progress.get("eventTime") or {}).get("watermark"),
                lag=_total(lags, progress),
                interval_ms=max(INTERVAL_MS_MIN, interval_ms),
            )
        )

    def idle(self, query_id: str, run_id: str, now: Millis) -> PipelineReport | None:
        """There was nothing to do; None if the query is not known."""
        last = self._last.get(query_id)
        if last is None or last.run_id != run_id:
            return None
        return self._keep(_changed(last, updated=now, input_rate=0.0, processed_rate=0.0))

    def ended(self, query_id: str, run_id: str, error: str | None, now: Millis) -> PipelineReport:
        """The query ends, with an error or without."""
        last = self._last.pop(query_id, None) or PipelineReport(query_id, run_id, now)
        return _changed(
            last,
            run_id=run_id,
            updated=now,
            state="stopped" if error is None else "failed",
            last_error=None if error is None else error[:ERROR_CHARACTERS_MAX],
        )

    def _keep(self, report: PipelineReport) -> PipelineReport:
        if report.id not in self._last and len(self._last) >= _QUERIES_MAX:
            self._last.clear()
        self._last[report.id] = report
        return report


def _changed(report: PipelineReport, **changes: Any) -> PipelineReport:
    fields = {name: getattr(report, name) for name in PipelineReport.__struct_fields__}
    return PipelineReport(**(fields | changes))


def _total(lags: list[dict[str, str]], progress: Mapping[str, Any]) -> int | None:
    """The sum over all partitions of all sources, from their averages."""
    known = [lag for lag in lags if lag]
    if not known:
        return None
    total = 0.0
    for lag, source in zip(lags, progress["sources"], strict=True):
        if lag:
            total += float(lag[AVERAGE]) * _partitions(source)
    return round(total)


def _partitions(source: Mapping[str, Any]) -> int:
    latest = source["latestOffset"]
    document = json.loads(latest) if isinstance(latest, str) else latest
    return sum(len(offsets) for offsets in document["offsets"].values())


class PipelineListener(StreamingQueryListener):
    """Writes a report for every event of Spark's queries."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        self._reports = QueryReports()

    def onQueryStarted(self, event: Any) -> None:
        """As Spark calls it."""
        self._send(self._reports.started(str(event.id), str(event.runId), event.name, wall_ms()))

    def onQueryProgress(self, event: Any) -> None:
        """As Spark calls it."""
        self._send(self._reports.progressed(json.loads(event.progress.json), wall_ms()))

    def onQueryIdle(self, event: Any) -> None:
        """As Spark calls it."""
        self._send(self._reports.idle(str(event.id), str(event.runId), wall_ms()))

    def onQueryTerminated(self, event: Any) -> None:
        """As Spark calls it."""
        error = event.exception
        self._send(self._reports.ended(str(event.id), str(event.runId), error, wall_ms()))

    def _send(self, report: PipelineReport | None) -> None:
        if report is not None:
            background_thread().submit(_write, self._properties, report)


def _write(properties: Mapping[str, str], report: PipelineReport) -> None:
    key, value = report.record()
    batch = build_batch([Record(key=key, value=value)], timestamp=Millis(report.updated))
    try:
        cluster_for(properties).run(send_batches({TopicPartition(TOPIC, 0): [batch]}))
    except (OSError, Refused) as failure:
        logger.warning("cannot report the query %s: %s", report.name or report.id, failure)
