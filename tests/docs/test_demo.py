"""`make demo`: it checks its results, and nothing remains of it."""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer
from rich.console import Console

from examples import demo
from examples.demo_platform import PlatformAddress
from examples.orders import Topics, Total, expected, generate
from examples.with_client import Results
from penstock.testing.embedded import EmbeddedBroker

ROOT = Path(__file__).parents[2]
DEMO = [sys.executable, "-m", "examples.demo"]


@contextmanager
def started(**environment: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        DEMO, cwd=ROOT, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def shown(show: Any, results: Results, *more: Any) -> tuple[bool, str]:
    """Whether the results are equal to the expected ones, and the text that is shown."""
    output = io.StringIO()
    same = show(Console(file=output, width=120), results, expected(generate(7, 200)), *more)
    return same, output.getvalue()


@pytest.fixture(scope="module")
def correct() -> Results:
    data = expected(generate(7, 200))
    return Results(dict(data.revenue), dict(data.paid), dict(data.quarantined))


def test_equal_results_are_shown_as_equal(correct: Results) -> None:
    for show, more in (
        (demo.show_revenue, ()),
        (demo.show_paid, ()),
        (demo.show_quarantine, (Topics(),)),
    ):
        same, text = shown(show, correct, *more)
        assert same
        assert "equal" in text
        assert "different" not in text


def test_one_cent_one_payment_or_one_bad_event_more_is_different(correct: Results) -> None:
    window, total = next(iter(correct.revenue.items()))
    cent = correct.revenue | {window: Total(total.orders, total.cents + 1)}
    order, (payment, wait_ms) = next(iter(correct.paid.items()))
    late = correct.paid | {order: (payment, wait_ms + 1)}
    for show, results, more in (
        (demo.show_revenue, correct._replace(revenue=cent), ()),
        (demo.show_revenue, correct._replace(revenue={}), ()),
        (demo.show_paid, correct._replace(paid=late), ()),
        (demo.show_quarantine, correct._replace(quarantined={"not_framed": 99}), (Topics(),)),
    ):
        same, text = shown(show, results, *more)
        assert not same
        assert "different" in text


def test_ctrl_c_leaves_no_process_and_no_folder() -> None:
    with started(ENGINE="client", ONCE="1") as process:
        assert process.stdout is not None
        folder = ""
        for line in process.stdout:
            if line.strip().startswith("Data"):
                folder = line.split()[1]
                break
        assert Path(folder).is_dir()
        children = psutil.Process(process.pid).children(recursive=True)
        assert children
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == demo.INTERRUPTED
        assert not [child for child in children if child.is_running()]
        assert not Path(folder).exists()


def test_a_folder_that_has_orders_is_refused(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        address = PlatformAddress(broker.bootstrap, "", str(tmp_path))
        demo.check_empty(address)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("orders", b"an order")
        assert producer.flush(30) == 0
        with pytest.raises(SystemExit, match="give an empty folder"):
            demo.check_empty(address)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("engine", ["client", "spark"])
def test_the_whole_demo_has_correct_results(engine: str, tmp_path: Path) -> None:
    done = subprocess.run(
        DEMO,
        cwd=ROOT,
        env={**os.environ, "ENGINE": engine, "ONCE": "1", "ORDERS": "1000", "DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all results are correct" in done.stdout
    assert (tmp_path / ".kafka_cleanshutdown").exists()  # a folder that was given remains
