"""A pipeline of the examples on a real Spark cluster: a standalone master and two workers."""

import subprocess
import sys
from pathlib import Path

import pytest

from examples.orders import Total, expected, publish, tell
from penstock.client.consumer import Consumer
from penstock.testing.apache_kafka import PeerUnavailable
from penstock.testing.platform import Platform
from penstock.testing.spark_cluster import SparkCluster

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 900
# Little data: two tasks after each shuffle where Spark takes two hundred.
SMALL = (
    "--driver-memory 1g --conf spark.sql.shuffle.partitions=2 --conf spark.ui.enabled=false "
    "pyspark-shell"
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS_MAX + 300)]


def revenue(platform: Platform) -> dict[tuple[int, str], Total]:
    """What is in the compacted topic: the last value of each key."""
    found: dict[tuple[int, str], Total] = {}
    with Consumer(
        platform.bootstrap, "revenue", "test", registry=platform.registry,
        settings={"isolation.level": "read_committed"},
    ) as consumer:  # fmt: skip
        for event in consumer.events(idle_s=10):
            hour = round(event.value["hour"].timestamp() * 1000)
            total = Total(event.value["orders"], event.value["cents"])
            found[hour, event.value["country"]] = total
    return found


def test_a_pipeline_runs_on_a_master_and_two_workers_as_it_does_on_a_laptop(tmp_path: Path) -> None:
    try:
        cluster = SparkCluster(workers=2)
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    platform = Platform("cluster").start()
    try:
        story = tell(seed=11, orders=600)
        publish(story, platform.bootstrap, platform.registry_url)
        with cluster:
            command = [sys.executable, "-m", "examples.windowed_revenue", "--once"]
            command += ["--kafka", platform.bootstrap, "--registry", platform.registry_url]
            done = subprocess.run(
                [*command, "--folder", str(tmp_path)],
                cwd=ROOT,
                env={**cluster.environment, "PYSPARK_SUBMIT_ARGS": SMALL},
                capture_output=True,
                text=True,
                timeout=SECONDS_MAX,
                check=False,
            )
            assert done.returncode == 0, done.stderr[-4000:]
            assert cluster.executors == 2, "it ran somewhere else"
        assert revenue(platform) == dict(expected(story).revenue)
    finally:
        platform.stop()
