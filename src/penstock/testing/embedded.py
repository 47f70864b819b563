"""A real broker for tests: a process of its own on a free port of loopback, gone when you are done.

with EmbeddedBroker() as broker:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
"""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from penstock.node.broker_process import BrokerOptions
from penstock.node.supervisor import BrokerProcess


class EmbeddedBroker:
    """One broker. Its folder outlives kills and restarts, and goes with `stop` if it was ours.

    `settings` are broker settings by Kafka's names. Groups form without delay unless told so.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        log_level: str = "WARNING",
    ) -> None:
        self._owns_folder = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-")) if folder is None else folder
        self._settings = dict(settings or {})
        self._log_level = log_level
        self._port = 0  # the first start takes any; a restart comes back to the same
        self._process: BrokerProcess | None = None

    @property
    def bootstrap(self) -> str:
        """Where clients connect."""
        assert self._port, "the broker has not been started"
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """Of the broker's process."""
        assert self._process is not None, "the broker does not run"
        return self._process.pid

    def start(self) -> "EmbeddedBroker":
        """Start, or start again on what is in the folder; returns when it serves."""
        assert self._process is None, "the broker runs"
        options = BrokerOptions(
            folder=str(self.folder),
            kafka_port=self._port,
            settings=self._settings,
            quick=True,
            log_level=self._log_level,
        )
        process = BrokerProcess(options)
        told = process.wait_ready()
        self._process = process
        self._port = int(told["kafka"].rpartition(":")[2])
        return self

    def halt(self) -> None:
        """Stop in good order; the folder stays."""
        if self._process is not None:
            process, self._process = self._process, None
            process.stop()

    def kill(self) -> None:
        """End the process at once (kill -9); the folder stays."""
        assert self._process is not None, "the broker does not run"
        process, self._process = self._process, None
        process.kill()

    def restart(self) -> "EmbeddedBroker":
        """Stop in good order if it runs, and start again on the same port."""
        self.halt()
        return self.start()

    def stop(self) -> None:
        """Stop for good."""
        self.halt()
        if self._owns_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> "EmbeddedBroker":
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
