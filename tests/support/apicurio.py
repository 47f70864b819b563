"""Apicurio Registry from Maven Central, in memory: the peer of our registry in benches.

The version is the last that runs on Java 17. Raises PeerUnavailableError where it cannot be had.
"""

import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import httpx

from tests.support.apache_kafka import free_port
from tests.support.maven import Artifact, PeerUnavailableError, fetch_archive

__all__ = ["VERSION", "Apicurio", "PeerUnavailableError"]

VERSION: Final = "3.0.9"
_ARTIFACT: Final = Artifact("io.apicurio", "apicurio-registry-app", VERSION)
_START_SECONDS_MAX: Final = 120


class Apicurio:
    """One node on loopback for the length of a `with` block; `url` is its Confluent-like API."""

    def __init__(self, *, heap: str = "1g") -> None:
        self._archive = fetch_archive("Apicurio", f"apicurio-{VERSION}", _ARTIFACT, "all")
        self._heap = heap
        self._folder = Path(tempfile.mkdtemp(prefix="apicurio-"))
        self._port = free_port()
        self._server: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{self._port}/apis/ccompat/v7"

    @property
    def pid(self) -> int:
        """The server's process id while it runs."""
        assert self._server is not None
        return self._server.pid

    def __enter__(self) -> "Apicurio":
        with tarfile.open(self._archive) as archive:
            # Python before 3.11.4 (Debian 12's) has no extraction filters.
            safely: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            archive.extractall(self._folder, **safely)
        (jar,) = self._folder.glob("*-runner.jar")
        settings = {
            "QUARKUS_HTTP_HOST": "127.0.0.1",
            "QUARKUS_HTTP_PORT": str(self._port),
            "QUARKUS_HTTP_ACCESS_LOG_ENABLED": "false",
            "QUARKUS_LOG_LEVEL": "WARN",
        }
        with (self._folder / "server.out").open("wb") as output:
            self._server = subprocess.Popen(
                ["java", f"-Xmx{self._heap}", f"-Xms{self._heap}", "-jar", str(jar)],
                stdout=output,
                stderr=output,
                env={**os.environ, **settings},
                start_new_session=True,
            )
        try:
            self._wait_until_serving()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        if self._server is not None:
            self._server.kill()  # it keeps nothing
            self._server.wait()
            self._server = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wait_until_serving(self) -> None:
        assert self._server is not None
        deadline = time.monotonic() + _START_SECONDS_MAX
        while time.monotonic() < deadline and self._server.poll() is None:
            try:
                if httpx.get(f"{self.url}/subjects", timeout=5).is_success:
                    return
            except httpx.HTTPError:
                time.sleep(0.2)
        said = (self._folder / "server.out").read_text(errors="replace")[-2000:]
        raise PeerUnavailableError(f"Apicurio did not start:\n{said}")
