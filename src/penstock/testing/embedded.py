"""A real broker and a real schema registry for tests: child processes on free loopback ports.

with EmbeddedBroker() as broker, EmbeddedRegistry(broker.bootstrap) as registry:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    client = SchemaRegistryClient({"url": registry.url})

The broker has faults on request and keeps its address through all of them: it is killed, stopped or
paused, its disk is full, its network slow. The registry works with any Kafka cluster.
"""

import os
import resource
import shutil
import signal
import socket
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil

from penstock.node.addresses import LOCALHOST
from penstock.node.broker_process import BrokerOptions
from penstock.node.http_process import HttpOptions
from penstock.node.supervisor import BrokerProcess, CannotStartError, ChildProcess, HttpProcess
from penstock.testing.slow_link import SlowLink


class Startable(ABC):
    """`with` starts it, and stops it at the end or if the start fails."""

    @abstractmethod
    def start(self) -> Self:
        """Start; returns when it serves."""

    @abstractmethod
    def stop(self) -> None:
        """Stop; a second time does nothing."""

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class EmbeddedBroker(Startable):
    """One broker. Its folder survives kills and restarts; `stop` removes it if none was given.

    `settings` are broker settings by Kafka's names. Groups form without delay unless they say so.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        log_level: str = "WARNING",
        options: BrokerOptions | None = None,  # of a broker of a cluster
    ) -> None:
        if options is not None and options.folder is not None:
            folder = Path(options.folder)
        self._owns_folder = folder is None
        self.folder: Final = (
            Path(tempfile.mkdtemp(prefix="penstock-")) if folder is None else folder
        )
        self._options = options or BrokerOptions(
            settings=dict(settings or {}), quick=True, log_level=log_level
        )
        # 0: the first start takes any free port, a restart the same
        self._port = self._options.kafka_port or 0
        self._process: ChildProcess | None = None
        self._is_paused = False
        self._is_full = False
        self._slow_link: SlowLink | None = None

    @property
    def bootstrap(self) -> str:
        """Where clients connect."""
        assert self._port, "the broker has not been started"
        return f"{self._options.host or LOCALHOST}:{self._port}"

    @property
    def pid(self) -> int:
        """Of the broker's process."""
        return self._running.pid

    @property
    def is_running(self) -> bool:
        """Whether there is a process, paused or not."""
        return self._process is not None

    def start(self) -> Self:
        """Start with what is in the folder; returns when it serves."""
        self.launch()
        return self.wait_ready()

    def launch(self) -> None:
        """Start with what is in the folder; it serves later."""
        assert self._process is None, "the broker runs"
        link = self._slow_link
        options = replace(
            self._options,
            folder=str(self.folder),
            kafka_port=self._port if link is None else _free_port(),  # 0 is refused in a cluster
            advertised=self._options.advertised if link is None else self.bootstrap,
        )
        self._process = self._make_process(options)

    def _make_process(self, options: BrokerOptions) -> ChildProcess:
        return BrokerProcess(options)

    def wait_ready(self) -> Self:
        """Wait until a broker that was launched serves."""
        try:
            report = self._running.wait_ready()
        except CannotStartError:
            self._process = None
            raise
        if self._slow_link is None:
            self._port = report["port"]
        else:
            self._slow_link.target = report["port"]
        return self

    def halt(self, *, hand_over: bool = True) -> None:
        """Stop cleanly; the folder stays. Without `hand_over` no other broker is waited for."""
        if self._process is not None:
            self.resume()
            self.free_disk()
            process, self._process = self._process, None
            process.stop() if hand_over else process.stop_now()

    def kill(self) -> None:
        """Kill the process (kill -9); the folder stays."""
        process, self._process = self._running, None
        self._is_paused = self._is_full = False
        process.kill()

    def restart(self) -> Self:
        """Stop cleanly if it runs, and start again on the same port."""
        self.halt()
        return self.start()

    def pause(self) -> None:
        """Pause it (SIGSTOP): connections stay open without responses."""
        os.kill(self._running.pid, signal.SIGSTOP)
        self._is_paused = True

    def resume(self) -> None:
        """Resume it; it continues as if no time had passed."""
        if self._is_paused:
            os.kill(self._running.pid, signal.SIGCONT)
            self._is_paused = False

    def fill_disk(self) -> None:
        """Make every write to a file fail, as on a full disk; reads work."""
        _limit_files(self._running.pid, 0)
        self._is_full = True

    def free_disk(self) -> None:
        """End `fill_disk`."""
        if self._is_full:
            _limit_files(self._running.pid, None)
            self._is_full = False

    def add_latency(self, latency_ms: int) -> None:
        """Delay all bytes this long in each direction; 0 ends it.

        The first call and the one that ends it restart the broker, to put a proxy before it.
        """
        if self._slow_link is not None and latency_ms:
            self._slow_link.latency_ms = latency_ms
            return
        if self._slow_link is None and not latency_ms:
            return
        self.halt()
        if self._slow_link is None:
            self._slow_link = SlowLink(self._port, latency_ms=latency_ms)
        else:
            self._slow_link.close()
            self._slow_link = None
        self.start()

    def heal(self) -> None:
        """End every fault; returns when it serves."""
        self.resume() if self._process is not None else self.start()
        self.free_disk()
        self.add_latency(0)

    def stop(self) -> None:
        """Stop; remove the folder if it was made for this broker."""
        self.halt()
        if self._slow_link is not None:
            self._slow_link.close()
            self._slow_link = None
        if self._owns_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _running(self) -> ChildProcess:
        assert self._process is not None, "the broker does not run"
        return self._process


def _free_port() -> int:
    with socket.create_server((LOCALHOST, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _limit_files(pid: int, size_bytes: int | None) -> None:
    """How large the files of a process and its children may become; None: the hard limit.

    Writes beyond it fail with "file too large", on a full disk with "no space left". The broker
    treats all errors of a write alike, and this needs no mount, quota or root.
    """
    family = [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    for member in family:
        _, hard_limit = resource.prlimit(member, resource.RLIMIT_FSIZE)
        limit = hard_limit if size_bytes is None else size_bytes
        resource.prlimit(member, resource.RLIMIT_FSIZE, (limit, hard_limit))


class EmbeddedRegistry(Startable):
    """One registry node. Its data is in the cluster; a restart uses the same port."""

    def __init__(self, bootstrap: str, *, log_level: str = "WARNING") -> None:
        self._bootstrap = bootstrap
        self._log_level = log_level
        self._port = 0
        self._process: HttpProcess | None = None

    @property
    def url(self) -> str:
        """Where clients connect."""
        assert self._port, "the registry has not been started"
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """Of the registry's process."""
        assert self._process is not None, "the registry does not run"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None

    def start(self) -> Self:
        """Start; returns when it serves."""
        assert self._process is None, "the registry runs"
        process = HttpProcess()
        process.configure(
            HttpOptions(self._bootstrap, http_port=self._port, log_level=self._log_level)
        )
        report = process.wait_ready()
        self._process = process
        self._port = int(report["http"].rpartition(":")[2].rstrip("/"))
        return self

    def stop(self) -> None:
        """Stop cleanly; it can be started again."""
        if self._process is not None:
            process, self._process = self._process, None
            process.stop()

    def kill(self) -> None:
        """Kill the process (kill -9)."""
        assert self._process is not None, "the registry does not run"
        process, self._process = self._process, None
        process.kill()
