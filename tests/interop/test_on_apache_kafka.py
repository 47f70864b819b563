"""Registry, client and Spark on Apache Kafka: their own tests with another broker.

Each run is a separate pytest on one Apache Kafka. Tests that cause faults are skipped.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.apache_kafka import ApacheKafka, PeerUnavailableError

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 1500

pytestmark = [pytest.mark.slow, pytest.mark.interop, pytest.mark.timeout(SECONDS_MAX + 60)]


@pytest.fixture(scope="module")
def kafka() -> Iterator[str]:
    try:
        server = ApacheKafka(heap="768m")
    except PeerUnavailableError as reason:
        pytest.skip(str(reason))
    with server:
        yield server.bootstrap


@pytest.mark.parametrize(
    ("folder", "least"),
    [
        pytest.param("tests/registry", 100, id="registry"),
        pytest.param("tests/gateway", 100, id="gateway"),
        pytest.param("tests/client", 200, id="client and quarantine"),
        pytest.param("tests/spark", 10, id="Spark"),
    ],
)
def test_a_room_passes_its_own_tests_on_apache_kafka(kafka: str, folder: str, least: int) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        folder,
        "-q",
        "-m",
        "not slow",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**_without_worker(os.environ), "PENSTOCK_TEST_KAFKA": kafka},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    output = done.stdout[-6000:] + done.stderr[-2000:]
    assert done.returncode == 0, output
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None, output
    assert int(passed[1]) >= least, output


def _without_worker(environment: Mapping[str, str]) -> dict[str, str]:
    """A run of its own: topics named after this run's worker would be those of the room before."""
    return {
        name: value for name, value in environment.items() if not name.startswith("PYTEST_XDIST")
    }
