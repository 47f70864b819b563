"""A platform of its own with a Prometheus that scrapes it, and alert rules in fast motion."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from penstock.testing.embedded import EmbeddedBroker, EmbeddedRegistry
from penstock.testing.embedded_cluster import EmbeddedCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
WAIT_S = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(holds: Callable[[], Any], what: str, within_s: float = WAIT_S) -> Any:
    """The first true result."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        result = holds()
        if result:
            return result
        time.sleep(0.2)
    raise AssertionError(f"not within {within_s:g} s: {what}")


def in_fast_motion(rules: str) -> str:
    """The same rules, with a second for each minute; a rate needs two samples, thus 5 s."""
    rules = re.sub(r"\[(\d+)m\]", lambda match: f"[{max(int(match[1]), 5)}s]", rules)
    rules = re.sub(r"for: (\d+)m", r"for: \1s", rules)
    return re.sub(r"(?<=_lag_seconds > )\d+", lambda match: f"{int(match[0]) / 60}", rules)


class Prometheus:
    """A server that scrapes every second."""

    def __init__(
        self, program: str, folder: Path, registry_url: str, static: tuple[str, ...] = ()
    ) -> None:
        folder.mkdir()
        (folder / "alerts.yml").write_text(in_fast_motion(ALERTS.read_text()))
        jobs: list[dict[str, Any]] = [
            {
                "job_name": "penstock",
                "http_sd_configs": [
                    {"url": f"{registry_url}/metrics/targets", "refresh_interval": "1s"}
                ],
            }
        ]
        if static:
            jobs.append({"job_name": "programs", "static_configs": [{"targets": list(static)}]})
        config = {
            "global": {
                "scrape_interval": "1s",
                "scrape_timeout": "1s",
                "evaluation_interval": "1s",
            },
            "rule_files": ["alerts.yml"],
            "scrape_configs": jobs,
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._process = subprocess.Popen(
            [
                program,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=error",
            ]
        )
        wait_until(self._is_ready, "Prometheus is ready")

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/-/ready").status_code == 200
        except httpx.TransportError:
            return False

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The instant vector of an expression."""
        answer = httpx.get(f"{self.url}/api/v1/query", params={"query": expression}, timeout=20)
        document = answer.json()
        assert document["status"] == "success", (expression, document)
        result = document["data"]["result"]
        return result if isinstance(result, list) else []

    def value(self, expression: str) -> float | None:
        """The only value of an expression; None if there is none."""
        rows = self.query(expression)
        return float(rows[0]["value"][1]) if rows else None

    def names(self) -> set[str]:
        """The names of all metrics."""
        answer = httpx.get(f"{self.url}/api/v1/label/__name__/values", timeout=20)
        return set(answer.json()["data"])

    def firing(self, alert: str, **labels: str) -> dict[str, str] | None:
        """The labels of an alert that fires, if it does."""
        wanted = ",".join(
            f'{name}="{value}"' for name, value in {"alertname": alert, **labels}.items()
        )
        rows = self.query(f'ALERTS{{alertstate="firing",{wanted}}}')
        return rows[0]["metric"] if rows else None

    def wait_firing(self, alert: str, **labels: str) -> dict[str, str]:
        found: dict[str, str] = wait_until(
            lambda: self.firing(alert, **labels), f"{alert} fires", 90
        )
        return found

    def wait_cleared(self, alert: str, **labels: str) -> None:
        wait_until(lambda: not self.firing(alert, **labels), f"{alert} clears", 90)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(20)


class Watched:
    """A broker, a registry, and Prometheus."""

    def __init__(self, broker: EmbeddedBroker, registry: EmbeddedRegistry, server: Prometheus):
        self.broker, self.registry, self.prometheus = broker, registry, server

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def broker_metrics(self) -> str:
        """The URL of the broker's metrics."""
        targets = httpx.get(f"{self.registry.url}/metrics/targets", timeout=20).json()
        (address,) = next(row["targets"] for row in targets if row["labels"]["process"] == "broker")
        return f"http://{address}"


@pytest.fixture(scope="session")
def prometheus() -> str:
    """Its program; the test is skipped where it or promtool is missing."""
    program = shutil.which("prometheus")
    if program is None or shutil.which("promtool") is None:
        pytest.skip("prometheus is not installed: make tools")
    return program


@pytest.fixture
def watch_cluster(
    tmp_path: Path, prometheus: str
) -> Iterator[Callable[[], tuple[EmbeddedCluster, Prometheus]]]:
    """Starts three brokers, a registry and Prometheus; all end with the test."""
    stops = ExitStack()

    def start() -> tuple[EmbeddedCluster, Prometheus]:
        cluster = stops.enter_context(EmbeddedCluster())
        registry = stops.enter_context(EmbeddedRegistry(cluster.bootstrap))
        server = Prometheus(prometheus, tmp_path / "prometheus", registry.url)
        stops.callback(server.stop)
        return cluster, server

    with stops:
        yield start


@pytest.fixture
def watch(tmp_path: Path, prometheus: str) -> Iterator[Callable[..., Watched]]:
    """Starts a platform and its Prometheus; both end with the test."""
    stops: list[Callable[[], None]] = []

    def start(folder: Path | None = None, static: tuple[str, ...] = (), **settings: str) -> Watched:
        named = {key.replace("_", "."): value for key, value in settings.items()}
        broker = EmbeddedBroker(folder, settings=named).start()
        stops.append(broker.stop)
        registry = EmbeddedRegistry(broker.bootstrap).start()
        stops.append(registry.stop)
        server = Prometheus(prometheus, tmp_path / "prometheus", registry.url, static)
        stops.append(server.stop)
        return Watched(broker, registry, server)

    yield start
    for stop in reversed(stops):
        stop()
