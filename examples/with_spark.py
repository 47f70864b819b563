"""The shop's results, computed by the pipelines of this folder on Spark.

Spark runs in a separate process, which ends with everything that it has started; its output goes to
a file that is shown only after a failure.
"""

import multiprocessing
import os
import re
import tempfile
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from examples.orders import Topics
from examples.with_client import Results, Step

if TYPE_CHECKING:
    from collections.abc import Callable

STOP_S = 30
CAUSES_MAX = 6
CAUSE_CHARACTERS_MAX = 300


def compute(kafka: str, registry_url: str, topics: Topics, step: Step) -> Results:
    """Run all pipelines, one after another; `step` is called with a description of each."""
    ours, theirs = multiprocessing.Pipe()
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        arguments = (theirs, Path(folder), kafka, registry_url, topics)
        process = multiprocessing.get_context("spawn").Process(target=_work, args=arguments)
        process.start()
        theirs.close()
        message: Any = None
        try:
            while isinstance(message := ours.recv(), str):
                step(message)
        except EOFError:
            output = (Path(folder) / "spark.log").read_text(errors="replace")
            raise RuntimeError(f"Spark failed:\n{_causes(output)}") from None
        finally:
            _end(process, within_s=STOP_S if isinstance(message, Results) else 0)
    results: Results = message
    return results


def _causes(output: str) -> str:
    """The lines that name an error, without query plans and Java's stack traces."""
    lines = [line.strip() for line in output.splitlines()]
    named = [
        line for line in lines if re.match(r"(Caused by: )?[\w.]*(Error|Exception|Refused)\b", line)
    ]
    return "\n".join(dict.fromkeys(line[:CAUSE_CHARACTERS_MAX] for line in named[-CAUSES_MAX:]))


def _end(process: Any, *, within_s: float) -> None:
    """End the process and the JVM that it has started."""
    try:
        children = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        children = []
    process.join(within_s)
    if process.is_alive():
        process.kill()
    process.join()
    _, alive = psutil.wait_procs(children, timeout=within_s)
    for child in alive:
        with suppress(psutil.NoSuchProcess):
            child.kill()
    psutil.wait_procs(alive, timeout=STOP_S)


def _work(
    connection: Connection, folder: Path, kafka: str, registry_url: str, topics: Topics
) -> None:
    """In the separate process: send a description of each step, then the results."""
    _redirect_output(folder / "spark.log")
    connection.send("starting")
    from examples import paid_orders, quarantined, windowed_revenue
    from examples.shop import Shop
    from penstock.spark import session

    spark = session(
        "penstock demo",
        master=os.environ.get("SPARK_MASTER", "local[2]"),
        settings={
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        },
    )
    shop = Shop(spark, kafka, registry_url, folder / "checkpoints", topics)

    def run(description: str, pipeline: Any) -> Any:
        connection.send(description)
        start: Callable[..., Any] = pipeline.start
        start(shop).awaitTermination()
        return pipeline.read_results(shop)

    results = Results(
        revenue=run("orders by hour and country, upserted exactly once", windowed_revenue),
        paid=run("payments joined with their orders within an hour", paid_orders),
        quarantined=run("events that cannot be decoded, to quarantine", quarantined),
    )
    spark.stop()
    connection.send(results)


def _redirect_output(path: Path) -> None:
    """Send the output of this process and of the JVM to a file: the demo shows its own progress."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)
