"""A real schema registry for tests: a process of its own on a free port, over any Kafka cluster.

with EmbeddedRegistry(broker.bootstrap) as registry:
    client = SchemaRegistryClient({"url": registry.url})
"""

from types import TracebackType

from penstock.node.http_process import HttpOptions
from penstock.node.supervisor import HttpProcess


class EmbeddedRegistry:
    """One registry node. What it stores is in the cluster; a restart comes back to its port."""

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

    def start(self) -> "EmbeddedRegistry":
        """Start; returns when it serves."""
        assert self._process is None, "the registry runs"
        process = HttpProcess()
        process.tell(HttpOptions(self._bootstrap, http_port=self._port, log_level=self._log_level))
        told = process.wait_ready()
        self._process = process
        self._port = int(told["http"].rpartition(":")[2].rstrip("/"))
        return self

    def stop(self) -> None:
        """Stop in good order; it may be started again."""
        if self._process is not None:
            process, self._process = self._process, None
            process.stop()

    def kill(self) -> None:
        """End the process at once (kill -9)."""
        assert self._process is not None, "the registry does not run"
        process, self._process = self._process, None
        process.kill()

    def __enter__(self) -> "EmbeddedRegistry":
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
