"""A first tour: a shop's events, from a broken producer to checked results. `make demo` runs it.

Starts the platform (a broker and a schema registry), writes orders and payments under three schema
versions and the events of one broken producer, computes three results, and checks each number
against a computation that uses neither log nor schema nor Spark. Then the platform keeps running
until Ctrl-C; with ONCE=1 it stops. The exit code is 0 only if all results are as expected. Nothing
remains except a folder that was given.
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

from examples.demo_platform import PlatformAddress, platform_up
from examples.orders import Expected, ShopData, Topics, Total, expected, generate, publish
from examples.with_client import Results, Step

SEED = 7
ORDERS = 5_000
INTERRUPTED = 130
EQUAL, DIFFERENT = "[green]equal[/]", "[bold red]different[/]"


def main(arguments: list[str]) -> int:
    """Run the demo; the exit code."""
    options = read_options(arguments)
    console = Console()
    interrupted = threading.Event()

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        interrupted.set()
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):  # both stop everything
        signal.signal(number, interrupt)
    started_s = time.monotonic()
    try:
        with platform_up(options.dir) as address:
            is_correct = run(console, address, options)
            summary = "[green]all results are correct" if is_correct else "[red]a result differs"
            console.print(f"{summary}[/], after {time.monotonic() - started_s:.0f} s.")
            if not options.once:
                keep_running(console, address)
            return 0 if is_correct else 1
    except (KeyboardInterrupt, SystemError):
        # A signal that arrives inside a C function may be raised as a SystemError.
        if not interrupted.is_set():
            raise
        console.print("Stopped before the results were computed.")
        return INTERRUPTED
    except (RuntimeError, TimeoutError) as failure:
        console.print(str(failure), style="red", markup=False, highlight=False)
        return 1


def read_options(arguments: list[str]) -> argparse.Namespace:
    """From the command line; ONCE, DIR, ORDERS and ENGINE of the environment are the defaults."""
    env = os.environ.get
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    folder = Path(env("DIR", "")) if env("DIR") else None
    parser.add_argument("--dir", type=Path, default=folder, help="folder for the logs")
    parser.add_argument("--once", action="store_true", default=env("ONCE", "") not in ("", "0"))
    parser.add_argument("--orders", type=int, default=int(env("ORDERS") or ORDERS))
    parser.add_argument("--engine", choices=["spark", "client"], default=env("ENGINE") or None)
    return parser.parse_args(arguments)


def run(console: Console, address: PlatformAddress, options: argparse.Namespace) -> bool:
    """Write, compute, compare; whether all results are as expected."""
    show_address(console, address)
    engine, compute = choose_engine(options.engine, console)
    check_empty(address)
    topics = Topics()
    data = generate(seed=SEED, orders=options.orders)
    with steps(console) as step:
        step(f"{options.orders:,} orders under three schemas, payments, and one broken producer")
        publish(data, address.kafka, address.registry, topics=topics)
        results = compute(
            address.kafka, address.registry, topics, lambda text: step(f"{engine}: {text}")
        )
    show_data(console, data, topics)
    correct = expected(data)
    return all(
        [  # a list, so that each table is shown
            show_revenue(console, results, correct),
            show_paid(console, results, correct),
            show_quarantine(console, results, correct, topics),
        ]
    )


def choose_engine(
    requested: str | None, console: Console
) -> tuple[str, Callable[[str, str, Topics, Step], Results]]:
    """Spark if it can run, else consumers."""
    missing = [] if find_spec("pyspark") else ["pyspark"]
    missing += [] if shutil.which("java") else ["Java 17"]
    if requested == "spark" and missing:
        raise SystemExit(f"the pipelines run on Spark, which needs {' and '.join(missing)}")
    if requested == "client" or missing:
        if requested is None:
            console.print(f"Spark needs {' and '.join(missing)}: using consumers instead.")
        from examples import with_client

        return "client", with_client.compute
    from examples import with_spark

    return "Spark", with_spark.compute


def check_empty(address: PlatformAddress) -> None:
    """A folder that was given may have the topics of an earlier run."""
    topics = AdminClient({"bootstrap.servers": address.kafka}).list_topics(timeout=20).topics
    if "orders" in topics:
        raise SystemExit(f"{address.folder} already has a topic `orders`: give an empty folder")


@contextmanager
def steps(console: Console) -> Iterator[Step]:
    """A line per step with a spinner and its time; each step ends the one before."""
    columns = (SpinnerColumn(finished_text="[green]*[/]"), TextColumn("{task.description}"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        running: list[TaskID] = []

        def step(description: str) -> None:
            for task in running:
                progress.update(task, total=1, completed=1)
            running[:] = [progress.add_task(description, total=None)]

        yield step
        for task in running:
            progress.update(task, total=1, completed=1)


def show_address(console: Console, address: PlatformAddress) -> None:
    """PlatformAddress the platform can be reached."""
    table = Table(show_header=False, box=None)
    for row in zip(("Kafka", "Schema registry", "Data"), address, strict=True):
        table.add_row(*row)
    console.print(table)


def show_data(console: Console, data: ShopData, topics: Topics) -> None:
    """The events that were written."""
    versions = {n: sum(order.version == n for order in data.orders) for n in (1, 2, 3)}
    table = _table("Events written", "topic", "events", "of them")
    counts = ", ".join(f"{count:,} under v{version}" for version, count in versions.items())
    bad = len(data.bad_events)
    total = len(data.orders) + bad
    table.add_row(topics.orders, f"{total:,}", f"{counts}, {bad:,} by a broken producer")
    table.add_row(topics.payments, f"{len(data.payments):,}", "")
    console.print(table)


def show_revenue(console: Console, results: Results, correct: Expected) -> bool:
    """Shown by country; compared by hour and country."""
    table = _table("Revenue per hour and country", "country", "hours", "orders", "revenue", "")
    for country in sorted({country for _, country in (*correct.revenue, *results.revenue)}):
        computed = {key: total for key, total in results.revenue.items() if key[1] == country}
        of_country = {key: total for key, total in correct.revenue.items() if key[1] == country}
        total = _total(computed.values())
        table.add_row(
            country, str(len(computed)), f"{total.orders:,}", f"{total.cents / 100:,.2f}",
            _comparison(computed == of_country),
        )  # fmt: skip
    console.print(table)
    return results.revenue == correct.revenue


def show_paid(console: Console, results: Results, correct: Expected) -> bool:
    """Orders with a payment within the hour."""
    table = _table("Orders joined with payments", "", "result", "expected", "")
    waits = [sum(wait for _, wait in paid.values()) for paid in (results.paid, correct.paid)]
    same = results.paid == correct.paid
    table.add_row("paid within the hour", f"{len(results.paid):,}", f"{len(correct.paid):,}", "")
    means = [f"{wait / 60_000 / max(len(correct.paid), 1):.2f} min" for wait in waits]
    table.add_row("mean wait for the payment", *means, _comparison(same))
    console.print(table)
    return same


def show_quarantine(console: Console, results: Results, correct: Expected, topics: Topics) -> bool:
    """Events that could not be decoded, by reason."""
    title = f"In {topics.orders}.quarantine"
    table = _table(title, "reason", "result", "expected", "")
    for reason in sorted({*results.quarantined, *correct.quarantined}):
        counts = (results.quarantined.get(reason, 0), correct.quarantined.get(reason, 0))
        table.add_row(reason, *map(str, counts), _comparison(counts[0] == counts[1]))
    console.print(table)
    return results.quarantined == correct.quarantined


def keep_running(console: Console, address: PlatformAddress) -> None:
    """Keep the platform running until Ctrl-C."""
    console.print("The platform keeps running. In another terminal (after `. .venv/bin/activate`):")
    bootstrap = "" if address.kafka.endswith(":9092") else f" -b {address.kafka}"
    registry = "" if address.registry.endswith(":8081") else f" --registry {address.registry}"
    for command in (
        f"penstock quarantine list orders{bootstrap}",
        f"penstock consume revenue --exit --json{bootstrap}",
        f"penstock schema list{registry}",
    ):
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
    each = list(totals)
    return Total(sum(total.orders for total in each), sum(total.cents for total in each))


def _comparison(same: bool) -> str:
    return EQUAL if same else DIFFERENT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
