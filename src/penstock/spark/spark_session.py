"""A Spark session with the settings that Penstock's pipelines need.

Your own session works as well: the settings are about speed and time-outs, except
`stateStore.providerClass`, which `transformWithState` requires.
"""

import os
import sys
from typing import Any, Final

from pyspark.sql import SparkSession

from penstock.spark.connections import is_classic
from penstock.spark.pipeline_listener import report_once

SETTINGS: Final = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.python.authenticate.socketTimeout": "60s",  # a busy machine starts workers slowly
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.ui.showConsoleProgress": "false",
}


def session(
    name: str = "penstock",
    *,
    master: str | None = None,
    settings: dict[str, str] | None = None,
    report_to: str | None = None,
) -> SparkSession:
    """The running session, or a new one: on `local[*]` unless `master` or Spark's settings differ.

    `settings` are Spark's, and override ours. `report_to` is the address of a Kafka cluster: the
    console of that cluster shows the session's streaming queries (`report_pipelines`).
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers with the same packages
    builder: Any = SparkSession.builder
    builder = builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    _ensure_source(spark)
    activate(spark)
    if report_to is not None:
        report_once(spark, report_to)
    return spark


def activate(spark: SparkSession) -> None:
    """Make this the active session of this thread, as `createDataFrame` does too.

    Writers look `format("penstock")` up in the session that is active in a thread of the JVM. There
    is none in a Python thread that has not created the session, and none after a call was
    interrupted (Ctrl-C, an exception of a signal handler): the next call gets another thread.
    """
    java: Any = spark
    if is_classic(spark):
        java._jvm.SparkSession.setActiveSession(java._jsparkSession)  # noqa: SLF001 - no other way


def _ensure_source(spark: SparkSession) -> None:
    """Register `format("penstock")` if Spark has not found it.

    Spark looks for sources once per session, in a Python worker. A failure of that is only a line
    in its log.
    """
    from pyspark_penstock import DefaultSource

    if not is_classic(spark):
        return  # a Connect server finds sources without our help
    java: Any = spark._jsparkSession  # noqa: SLF001 - Python has no way to list what was found
    if not java.sessionState().dataSourceManager().dataSourceExists(DefaultSource.name()):
        spark.dataSource.register(DefaultSource)
