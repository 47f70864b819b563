"""A Spark session with what Penstock's pipelines need set, and nothing surprising.

A session of your own works as well: every setting here is about speed or patience, but for
`stateStore.providerClass`, which `transformWithState` asks for.
"""

import os
import sys
from typing import Any, Final

from pyspark.sql import SparkSession

from penstock.spark.connections import is_classic

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
    name: str = "penstock", *, master: str | None = None, settings: dict[str, str] | None = None
) -> SparkSession:
    """The running session, or a new one: on `local[*]` unless `master` or Spark's own says else."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers that have what we have
    builder: Any = SparkSession.builder
    builder = builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    made: SparkSession = builder.getOrCreate()
    _ensure_source(made)
    activate(made)
    return made


def activate(spark: SparkSession) -> None:
    """Make this the session that Spark finds in this thread, as `createDataFrame` does too.

    Writers look for `format("penstock")` in the session that is active in a thread of the JVM.
    There is none in a Python thread that has not made the session, and none any longer where a
    call was interrupted (Ctrl-C, a signal's exception): the next call gets another thread.
    """
    java: Any = spark
    if is_classic(spark):
        java._jvm.SparkSession.setActiveSession(java._jsparkSession)  # noqa: SLF001 - no other way


def _ensure_source(spark: SparkSession) -> None:
    """Register `format("penstock")` where Spark has not found it.

    Spark looks for sources once in a session, in a Python worker. A look that fails is only a line
    in its log.
    """
    from pyspark_penstock import DefaultSource

    if not is_classic(spark):
        return  # a Connect server finds sources by itself
    java: Any = spark._jsparkSession  # noqa: SLF001 - Python has no way to ask what was found
    if not java.sessionState().dataSourceManager().dataSourceExists(DefaultSource.name()):
        spark.dataSource.register(DefaultSource)
