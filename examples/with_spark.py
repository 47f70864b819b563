"""The shop's questions answered by the pipelines of this folder, on Spark.

Spark runs in a process of its own, so that it is gone with all it started when the answers are
there, and what it says of itself goes to a file that is shown only when something went wrong.
"""

import multiprocessing
import os
import re
import tempfile
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from examples.orders import Topics
from examples.with_client import Found, Step

STOP_S = 30
CAUSES_MAX = 6
CAUSE_CHARACTERS_MAX = 300


def answer(kafka: str, registry_url: str, topics: Topics, step: Step) -> Found:
    """All of them, one after another; `step` is told what is being done."""
    ours, theirs = multiprocessing.Pipe()
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        arguments = (theirs, Path(folder), kafka, registry_url, topics)
        process = multiprocessing.get_context("spawn").Process(target=_work, args=arguments)
        process.start()
        theirs.close()
        told: Any = None
        try:
            while isinstance(told := ours.recv(), str):
                step(told)
        except EOFError:
            said = (Path(folder) / "spark.log").read_text(errors="replace")
            raise RuntimeError(f"Spark failed:\n{_causes(said)}") from None
        finally:
            _end(process, within_s=STOP_S if isinstance(told, Found) else 0)
    found: Found = told
    return found


def _causes(said: str) -> str:
    """The lines that name an error: a query's plan and a trace of Java's say little to anybody."""
    lines = [line.strip() for line in said.splitlines()]
    named = [
        line for line in lines if re.match(r"(Caused by: )?[\w.]*(Error|Exception|Refused)\b", line)
    ]
    return "\n".join(dict.fromkeys(line[:CAUSE_CHARACTERS_MAX] for line in named[-CAUSES_MAX:]))


def _end(process: Any, *, within_s: float) -> None:
    """The process and the JVM it started are gone when this returns."""
    try:
        family = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    process.join(within_s)
    if process.is_alive():
        process.kill()
    process.join()
    _, left = psutil.wait_procs(family, timeout=within_s)
    for one in left:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(left, timeout=STOP_S)


def _work(tell: Connection, folder: Path, kafka: str, registry_url: str, topics: Topics) -> None:
    """In the process of its own: tells each step, and at last what was found."""
    _say_into(folder / "spark.log")
    tell.send("starting")
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

    def ask(told: str, pipeline: Any) -> Any:
        tell.send(told)
        run: Callable[..., Any] = pipeline.start
        run(shop).awaitTermination()
        return pipeline.found(shop)

    found = Found(
        revenue=ask("orders by hour and country, upserted exactly once", windowed_revenue),
        paid=ask("payments joined with their orders within an hour", paid_orders),
        quarantined=ask("what could not be read, to quarantine", quarantined),
    )
    spark.stop()
    tell.send(found)


def _say_into(path: Path) -> None:
    """Whatever is said here and by the JVM goes to a file: the progress display is the demo's."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)
