"""`make demo`: it checks what it shows, and leaves nothing behind."""

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
from examples.demo_platform import Where
from examples.orders import Topics, Total, expected, tell
from examples.with_client import Found
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


def say(show: Any, found: Found, *more: Any) -> tuple[bool, str]:
    paper = io.StringIO()
    same = show(Console(file=paper, width=120), found, expected(tell(7, 200)), *more)
    return same, paper.getvalue()


@pytest.fixture(scope="module")
def right() -> Found:
    wanted = expected(tell(7, 200))
    return Found(dict(wanted.revenue), dict(wanted.paid), dict(wanted.quarantined))


def test_what_is_equal_is_called_so(right: Found) -> None:
    for show, more in (
        (demo.show_revenue, ()),
        (demo.show_paid, ()),
        (demo.show_quarantine, (Topics(),)),
    ):
        same, told = say(show, right, *more)
        assert same
        assert "equal" in told
        assert "different" not in told


def test_one_cent_one_payment_or_one_bad_event_more_is_different(right: Found) -> None:
    place = next(iter(right.revenue))
    cent = right.revenue | {
        place: Total(right.revenue[place].orders, right.revenue[place].cents + 1)
    }
    order, (payment, wait_ms) = next(iter(right.paid.items()))
    late = right.paid | {order: (payment, wait_ms + 1)}
    for show, wrong, more in (
        (demo.show_revenue, right._replace(revenue=cent), ()),
        (demo.show_revenue, right._replace(revenue={}), ()),
        (demo.show_paid, right._replace(paid=late), ()),
        (demo.show_quarantine, right._replace(quarantined={"not_framed": 99}), (Topics(),)),
    ):
        same, told = say(show, wrong, *more)
        assert not same
        assert "different" in told


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
        where = Where(broker.bootstrap, "", str(tmp_path))
        demo.check_empty(where)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("orders", b"somebody's own")
        assert producer.flush(30) == 0
        with pytest.raises(SystemExit, match="give an empty folder"):
            demo.check_empty(where)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("engine", ["client", "spark"])
def test_the_whole_demo_checks_out(engine: str, tmp_path: Path) -> None:
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
    assert "everything checked out" in done.stdout
    assert (tmp_path / ".kafka_cleanshutdown").exists()  # the folder that was asked for stays
