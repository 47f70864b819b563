"""Apache Kafka as a peer: its jars by Maven coordinates, one KRaft node, its tools and its clients.

Used by interop tests and benches; nothing here is needed to run Penstock. The jars are kept in the
user's cache folder, so they are fetched once per machine.
"""

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from tests.support.maven import Artifact, PeerUnavailableError, fetch_jars

__all__ = [
    "VERSION",
    "ApacheKafka",
    "PeerUnavailableError",
    "fetch_libraries",
    "free_port",
    "java_command",
    "new_cluster_id",
    "run_tool",
]

VERSION: Final = "4.3.1"
_ARTIFACTS: Final = (
    Artifact("org.apache.kafka", "kafka_2.13", VERSION),
    Artifact("org.apache.kafka", "kafka-tools", VERSION),
    Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.3"),
)
_START_SECONDS_MAX: Final = 180  # recovering thousands of partitions takes it a while


def fetch_libraries() -> Path:
    """The folder with Apache Kafka's jars, fetched with Maven at the first call."""
    return fetch_jars("Apache Kafka", f"apache-kafka-{VERSION}", _ARTIFACTS)


def run_tool(libraries: Path, main_class: str, *arguments: str, seconds_max: int = 120) -> str:
    """Run one of Kafka's command line tools; its standard output, or an error with all it said."""
    done = subprocess.run(
        java_command(libraries, main_class, *arguments),
        capture_output=True,
        text=True,
        timeout=seconds_max,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{main_class} {' '.join(arguments)}:\n{done.stdout}{done.stderr}")
    return done.stdout


def java_command(libraries: Path, main_class: str, *arguments: str) -> list[str]:
    """The command line that runs a class, or a single source file, with Kafka's jars."""
    return ["java", "-Xmx512m", "-cp", f"{libraries}/*", main_class, *arguments]


def new_cluster_id(libraries: Path) -> str:
    """An id as Kafka's own tool makes it."""
    return run_tool(libraries, "kafka.tools.StorageTool", "random-uuid").strip().splitlines()[-1]


class ApacheKafka:
    """One Apache Kafka node on loopback, for the length of a `with` block."""

    def __init__(
        self,
        *,
        heap: str = "1g",
        settings: Sequence[str] = (),
        folder: Path | None = None,
        cluster_id: str | None = None,  # that several nodes have in common; None: a new one
    ) -> None:
        self._libraries = fetch_libraries()
        self._heap = heap
        self._settings = settings
        self._cluster_id = cluster_id
        self._folder = folder or Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        self._owns_folder = folder is None
        self._server: subprocess.Popen[bytes] | None = None
        self.port, self.controller_port = free_port(), free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The server's process id while it runs."""
        assert self._server is not None
        return self._server.pid

    def __enter__(self) -> "ApacheKafka":
        self.format()
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.halt()
        if self._owns_folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start the node on its folder and wait until it listens."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start the node on its folder; it listens later."""
        output = (self._folder / "server.out").open("ab")
        self._server = subprocess.Popen(
            [
                "java",
                f"-Xmx{self._heap}",
                f"-Xms{self._heap}",
                "-XX:+UseG1GC",
                "-cp",
                f"{self._libraries}/*",
                "kafka.Kafka",
                str(self._properties),
            ],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        output.close()

    def halt(self) -> None:
        """Stop cleanly; the folder stays."""
        if self._server is None:
            return
        self._server.terminate()
        try:
            self._server.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.kill()
        self._server = None

    def kill(self) -> None:
        """Kill the process, as a crash would; the folder stays."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            self._server = None

    @property
    def _properties(self) -> Path:
        return self._folder / "server.properties"

    def format(self, *settings: str) -> None:
        """Write the node's settings, these too, and prepare its folder: before the first start."""
        self._folder.mkdir(parents=True, exist_ok=True)
        lines = [
            "process.roles=broker,controller",
            "node.id=1",
            f"controller.quorum.voters=1@127.0.0.1:{self.controller_port}",
            f"listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "controller.listener.names=CONTROLLER",
            f"log.dirs={self._folder / 'log'}",
            "offsets.topic.replication.factor=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
            "group.initial.rebalance.delay.ms=0",
            *self._settings,
            *settings,
        ]
        self._properties.write_text("\n".join(lines) + "\n")
        storage = "kafka.tools.StorageTool"
        cluster_id = self._cluster_id or new_cluster_id(self._libraries)
        run_tool(self._libraries, storage, "format", "-t", cluster_id, "-c", str(self._properties))

    def wait_ready(self) -> None:
        """Wait until a node that was launched listens."""
        assert self._server is not None
        deadline = time.monotonic() + _START_SECONDS_MAX
        while time.monotonic() < deadline:
            if self._server.poll() is not None:
                break
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        said = (self._folder / "server.out").read_text(errors="replace")[-2000:]
        self.kill()
        raise PeerUnavailableError(f"Apache Kafka did not start:\n{said}")


def free_port() -> int:
    """A free loopback port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
