"""A real Spark cluster on loopback for tests: a standalone master and workers from the pip package.

with SparkCluster(workers=2) as cluster:
    session("my pipeline", master=cluster.master)

Executors are processes of their own, started by the workers: what works here works by pickling and
over the network. Needs pyspark and Java; imports neither.
"""

import os
import shutil
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final

from tests.support.apache_kafka import PeerUnavailable, free_port

MASTER: Final = "org.apache.spark.deploy.master.Master"
WORKER: Final = "org.apache.spark.deploy.worker.Worker"
READY_S: Final = 180.0
STOP_S: Final = 30.0
SAID_CHARACTERS_MAX: Final = 2000
LOOPBACK: Final = "127.0.0.1"


class SparkCluster:
    """A master and its workers, for the length of a `with` block."""

    def __init__(self, *, workers: int = 2, cores: int = 1, memory: str = "1g") -> None:
        package = find_spec("pyspark")
        if package is None or package.origin is None:
            raise PeerUnavailable("a Spark cluster needs pyspark: install Penstock's extra `spark`")
        if shutil.which("java") is None:
            raise PeerUnavailable("a Spark cluster needs `java`, which is not on the PATH")
        self._home = Path(package.origin).parent
        self._workers = workers
        self._resources = ["--cores", str(cores), "--memory", memory]
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-spark-"))
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = f"spark://{LOOPBACK}:{free_port()}"

    def __enter__(self) -> "SparkCluster":
        try:
            port = self.master.rpartition(":")[2]
            self._start(MASTER, "--port", port, "--webui-port", "0")
            self._wait_for("master", "I have been elected leader", 1)
            for number in range(self._workers):
                place = str(self._folder / f"work-{number}")
                self._start(
                    WORKER, self.master, "--webui-port", "0", "--work-dir", place, *self._resources
                )
            self._wait_for("worker", "Successfully registered with master", self._workers)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    @property
    def environment(self) -> dict[str, str]:
        """For a driver that is to run here: everything talks over loopback."""
        return {
            **os.environ,
            "MASTER": self.master,
            "SPARK_LOCAL_IP": LOOPBACK,
        }

    @property
    def executors(self) -> int:
        """How many executors the workers have started since the cluster is there."""
        return len(list(self._folder.glob("work-*/app-*/*")))

    def _start(self, role: str, *arguments: str) -> None:
        name = "master" if role == MASTER else "worker"
        command = [str(self._home / "bin" / "spark-class"), role, "--host", LOOPBACK, *arguments]
        environment = {
            **os.environ,
            "SPARK_HOME": str(self._home),
            "SPARK_DAEMON_MEMORY": "384m",
            "SPARK_LOCAL_IP": LOOPBACK,
        }
        with open(self._folder / f"{name}-{len(self._processes)}.log", "wb") as log:
            self._processes.append(
                subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            )

    def _wait_for(self, name: str, words: str, count: int) -> None:
        give_up_at_s = time.monotonic() + READY_S
        while time.monotonic() < give_up_at_s:
            said = [path.read_text(errors="replace") for path in self._folder.glob(f"{name}-*.log")]
            if sum(words in one for one in said) == count:
                return
            if any(process.poll() is not None for process in self._processes):
                break
            time.sleep(0.2)
        said = [path.read_text(errors="replace") for path in self._folder.glob(f"{name}-*.log")]
        raise PeerUnavailable(f"the {name} did not start:\n{''.join(said)[-SAID_CHARACTERS_MAX:]}")

    def _stop(self) -> None:
        for process in reversed(self._processes):  # workers first: they end their executors
            process.terminate()
        for process in self._processes:
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
