"""The page from a laptop to a cluster: its commands run, on a standalone master and two workers."""

import importlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.client.consumer import Consumer
from penstock.client.registry import Registry
from tests.support.apache_kafka import free_port

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "laptop-to-cluster.md"
SECONDS_MAX = 900
# Little data: two tasks after each shuffle where Spark takes two hundred.
SMALL = (
    "--driver-memory 1g --conf spark.sql.shuffle.partitions=2 --conf spark.ui.enabled=false "
    "pyspark-shell"
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS_MAX + 300)]


def revenue(bootstrap: str, registry_url: str) -> dict[tuple[int, str], tuple[int, int]]:
    """What is in the compacted topic: the last value of each key."""
    totals: dict[tuple[int, str], tuple[int, int]] = {}
    with (
        Registry(registry_url) as registry,
        Consumer(bootstrap, "revenue", "test", registry=registry) as consumer,
    ):
        for event in consumer.events(idle_s=10):
            hour = round(event.value["hour"].timestamp() * 1000)
            totals[hour, event.value["country"]] = (event.value["orders"], event.value["cents"])
    return totals


def test_every_command_from_a_laptop_to_a_cluster_does_what_the_page_says(
    follow: Callable[[str], int],
    addresses: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17 or newer (make java)")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", SMALL)
    monkeypatch.setenv("SPARK_DAEMON_MEMORY", "384m")
    monkeypatch.setenv("SPARK_MASTER_WEBUI_PORT", "0")
    monkeypatch.setenv("SPARK_WORKER_WEBUI_PORT", "0")
    monkeypatch.setenv("PYTHONPATH", f"{PAGE.parents[2]}{os.pathsep}")  # as a checkout would be
    addresses["127.0.0.1:7077"] = f"127.0.0.1:{free_port()}"
    port = addresses["127.0.0.1:7077"].rpartition(":")[2]
    addresses["--port 7077"] = f"--port {port}"
    assert follow(PAGE.read_text()) == 3
    orders = importlib.import_module("examples.orders")
    expected = orders.expected(orders.generate(seed=7, orders=600)).revenue
    totals = revenue(addresses["127.0.0.1:9092"], f"http://{addresses['127.0.0.1:8081']}")
    assert totals == {key: tuple(total) for key, total in expected.items()}
