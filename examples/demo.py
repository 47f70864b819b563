"""The first minutes: a shop's events from broken producer to checked results. `make demo` runs it.

Starts the platform (a broker and a schema registry), writes orders and payments under three schema
versions together with one bad producer, answers three questions about them, and checks each number
against a computation that uses neither log nor schema nor Spark. Then the platform stays up to be
tried out until Ctrl-C; with ONCE=1 it stops by itself. The exit code is 0 only if everything
checked out. Nothing is left behind but a folder that was asked for.
"""

import argparse
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from confluent_kafka.admin import AdminClient
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.demo_platform import Where, platform_up
from examples.orders import Expected, Story, Topics, Total, expected, publish, tell
from examples.with_client import Found, Step
from penstock.cli.up import next_commands

SEED = 7
ORDERS = 5_000
INTERRUPTED = 130
EQUAL, DIFFERENT = "[green]equal[/]", "[bold red]different[/]"


def main(arguments: list[str]) -> int:
    """Everything; the exit code."""
    options = read_options(arguments)
    console = Console()
    interrupted = threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        interrupted.set()
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):  # a stop from outside leaves nothing either
        signal.signal(number, interrupt)
    started_s = time.monotonic()
    try:
        with platform_up(options.dir) as where:
            checked = run(console, where, options)
            verdict = "[green]everything checked out" if checked else "[red]something is different"
            console.print(f"{verdict}[/], after {time.monotonic() - started_s:.0f} s.")
            if not options.once:
                stay(console, where)
            return 0 if checked else 1
    except (KeyboardInterrupt, SystemError):
        # A signal that arrives inside a C function can come out of it as a SystemError.
        if not interrupted.is_set():
            raise
        console.print("Stopped before the results were there.")
        return INTERRUPTED
    except (RuntimeError, TimeoutError) as failure:
        console.print(str(failure), style="red", markup=False, highlight=False)
        return 1


def read_options(arguments: list[str]) -> argparse.Namespace:
    """From the command line; ONCE, DIR, ORDERS and ENGINE of the environment are the defaults."""
    told = os.environ.get
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    folder = Path(told("DIR", "")) if told("DIR") else None
    parser.add_argument("--dir", type=Path, default=folder, help="keep the logs here")
    parser.add_argument("--once", action="store_true", default=told("ONCE", "") not in ("", "0"))
    parser.add_argument("--orders", type=int, default=int(told("ORDERS") or ORDERS))
    parser.add_argument("--engine", choices=["spark", "client"], default=told("ENGINE") or None)
    return parser.parse_args(arguments)


def run(console: Console, where: Where, options: argparse.Namespace) -> bool:
    """Write, ask, compare; whether all is as it must be."""
    show_where(console, where)
    engine, answer = choose_engine(options.engine, console)
    check_empty(where)
    topics = Topics()
    story = tell(seed=SEED, orders=options.orders)
    with steps(console) as step:
        step(f"{options.orders:,} orders under three schemas, payments, and one bad producer")
        publish(story, where.kafka, where.registry, topics=topics)
        found = answer(where.kafka, where.registry, topics, lambda told: step(f"{engine}: {told}"))
    show_story(console, story, topics)
    wanted = expected(story)
    return all(
        [  # each is shown, whatever the others say
            show_revenue(console, found, wanted),
            show_paid(console, found, wanted),
            show_quarantine(console, found, wanted, topics),
        ]
    )


def choose_engine(
    wanted: str | None, console: Console
) -> tuple[str, Callable[[str, str, Topics, Step], Found]]:
    """Spark where it can run, else plain programs on the client."""
    missing = [] if find_spec("pyspark") else ["pyspark"]
    missing += [] if shutil.which("java") else ["Java 17"]
    if wanted == "spark" and missing:
        raise SystemExit(f"the pipelines run on Spark, which needs {' and '.join(missing)}")
    if wanted == "client" or missing:
        if wanted is None:
            console.print(f"Without Spark, which needs {' and '.join(missing)}: plain programs.")
        from examples import with_client

        return "client", with_client.answer
    from examples import with_spark

    return "Spark", with_spark.answer


def check_empty(where: Where) -> None:
    """A folder that was given may hold an earlier run, or somebody's own orders."""
    there = AdminClient({"bootstrap.servers": where.kafka}).list_topics(timeout=20).topics
    if "orders" in there:
        raise SystemExit(f"{where.folder} has a topic `orders` already: give an empty folder")


@contextmanager
def steps(console: Console) -> Iterator[Step]:
    """A line per step with a spinner and its time; the next one ends the one before."""
    columns = (SpinnerColumn(finished_text="[green]*[/]"), TextColumn("{task.description}"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        running: list[TaskID] = []

        def step(told: str) -> None:
            for task in running:
                progress.update(task, total=1, completed=1)
            running[:] = [progress.add_task(told, total=None)]

        yield step
        for task in running:
            progress.update(task, total=1, completed=1)


def show_where(console: Console, where: Where) -> None:
    """Where everything is."""
    table = Table(show_header=False, box=None)
    for row in zip(("Kafka", "Schema registry", "Data"), where, strict=True):
        table.add_row(*row)
    console.print(table)


def show_story(console: Console, story: Story, topics: Topics) -> None:
    """What was written."""
    versions = {n: sum(order.version == n for order in story.orders) for n in (1, 2, 3)}
    table = _table("What was written", "topic", "events", "of them")
    told = ", ".join(f"{count:,} by v{version}" for version, count in versions.items())
    total = len(story.orders) + len(story.spoiled)
    table.add_row(topics.orders, f"{total:,}", f"{told}, {len(story.spoiled):,} by a bad producer")
    table.add_row(topics.payments, f"{len(story.payments):,}", "")
    console.print(table)


def show_revenue(console: Console, found: Found, wanted: Expected) -> bool:
    """By country for the eye; by hour and country for the check."""
    table = _table("Revenue per hour and country", "country", "hours", "orders", "revenue", "")
    for country in sorted({country for _, country in (*wanted.revenue, *found.revenue)}):
        ours = {place: sum_ for place, sum_ in found.revenue.items() if place[1] == country}
        theirs = {place: sum_ for place, sum_ in wanted.revenue.items() if place[1] == country}
        total = _total(ours.values())
        table.add_row(
            country, str(len(ours)), f"{total.orders:,}", f"{total.cents / 100:,.2f}",
            _verdict(ours == theirs),
        )  # fmt: skip
    console.print(table)
    return found.revenue == wanted.revenue


def show_paid(console: Console, found: Found, wanted: Expected) -> bool:
    """Orders with the payment that came within the hour."""
    table = _table("Orders joined with payments", "", "found", "expected", "")
    waits = [sum(wait for _, wait in paid.values()) for paid in (found.paid, wanted.paid)]
    same = found.paid == wanted.paid
    table.add_row("paid within the hour", f"{len(found.paid):,}", f"{len(wanted.paid):,}", "")
    means = [f"{wait / 60_000 / max(len(wanted.paid), 1):.2f} min" for wait in waits]
    table.add_row("mean wait for the payment", *means, _verdict(same))
    console.print(table)
    return same


def show_quarantine(console: Console, found: Found, wanted: Expected, topics: Topics) -> bool:
    """What could not be read, by reason."""
    title = f"In {topics.orders}.quarantine"
    table = _table(title, "reason", "found", "expected", "")
    for reason in sorted({*found.quarantined, *wanted.quarantined}):
        counts = (found.quarantined.get(reason, 0), wanted.quarantined.get(reason, 0))
        table.add_row(reason, *map(str, counts), _verdict(counts[0] == counts[1]))
    console.print(table)
    return found.quarantined == wanted.quarantined


def stay(console: Console, where: Where) -> None:
    """Leave the platform to whoever wants to try it, until Ctrl-C."""
    console.print("The platform stays up. Try, in another terminal (after `. .venv/bin/activate`):")
    there = "" if where.kafka.endswith(":9092") else f" -b {where.kafka}"
    for command in (f"penstock quarantine list orders{there}", *next_commands(*where[:2])):
        console.print(f"  {command}", highlight=False, markup=False, soft_wrap=True)
    console.print("Stop with Ctrl-C.")
    with suppress(KeyboardInterrupt):
        signal.pause()


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index in (0, len(columns) - 1) else "right")
    return table


def _total(totals: Any) -> Total:
    pairs = list(totals)
    return Total(sum(one.orders for one in pairs), sum(one.cents for one in pairs))


def _verdict(same: bool) -> str:
    return EQUAL if same else DIFFERENT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
