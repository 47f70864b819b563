"""A real Spark Connect server on loopback for tests, as a process of its own.

with ConnectServer(folder) as server:
    SparkSession.builder.remote(server.url).getOrCreate()

Needs pyspark with its Connect packages and Java; imports neither.
"""

import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final

from tests.support.apache_kafka import PeerUnavailableError, free_port

SERVER: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
STARTED: Final = "Spark Connect server started at"
READY_S: Final = 180.0
STOP_S: Final = 30.0
SAID_CHARACTERS_MAX: Final = 4_000


class ConnectServer:
    """The server for the length of a `with` block; `url` is what clients are given."""

    def __init__(self, folder: Path, *, master: str = "local[2]") -> None:
        port = free_port()
        self.url = f"sc://127.0.0.1:{port}"
        self._folder = folder
        self._log = folder / "connect-server.log"
        settings = {
            "spark.master": master,
            "spark.ui.enabled": "false",
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
            "spark.python.authenticate.socketTimeout": "60s",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(port),
        }
        package = find_spec("pyspark")
        if package is None or package.origin is None:
            raise PeerUnavailableError("Spark Connect needs pyspark: pip install 'penstock[spark]'")
        home = Path(package.origin).parent
        said = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        self._command = [str(home / "bin" / "spark-submit"), "--class", SERVER, *said]
        self._command.append("spark-internal")
        self._environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "ConnectServer":
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                cwd=self._folder,
                stdout=log,
                stderr=log,
            )
        give_up_at_s = time.monotonic() + READY_S
        while STARTED not in self.said():
            if time.monotonic() > give_up_at_s or self._process.poll() is not None:
                said = self.said()
                self._stop()
                raise PeerUnavailableError(f"no Connect server:\n{said[-SAID_CHARACTERS_MAX:]}")
            time.sleep(0.2)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def said(self) -> str:
        """The server's log, with what its Python workers print."""
        return self._log.read_text(errors="replace")

    def _stop(self) -> None:
        assert self._process is not None, "stopped after it was started"
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
