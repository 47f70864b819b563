"""Supervises the processes of `penstock up`: starts them, reports when all are ready, stops them.

Imports nothing of what it starts, so that the broker starts before anything else is loaded.
"""

import json
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import FrameType
from typing import Any, Final

from penstock.node import broker_process, http_process
from penstock.node.broker_process import BrokerOptions
from penstock.node.http_process import HttpOptions

READY_S: Final = 120.0  # after a hard stop a large folder is recovered first
# A broker waits 4 s for pending responses, then closes its partitions: a second or more for each
# 50 000, and several times that on a busy machine. Only one that hangs is killed.
STOP_S: Final = 60.0
EXIT_S: Final = 5.0  # from the end of a process's output to its exit


class CannotStartError(Exception):
    """A process did not start; the message says why and what to do."""


class ChildProcess:
    """A child process that reports in one line of JSON whether it started."""

    def __init__(self, name: str, command: list[str]) -> None:
        self._name = name
        # Ctrl-C reaches every process of a terminal: children ignore it, and the parent stops them.
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)

    def fileno(self) -> int:
        """Readable when the process has written a line, or has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    @property
    def pid(self) -> int:
        """Of the child."""
        return self._process.pid

    def wait_ready(self, within_s: float = READY_S) -> dict[str, Any]:
        """Its report once it serves; CannotStartError with its reason."""
        stdout = self._process.stdout
        assert stdout is not None
        readable, _, _ = select.select([stdout], [], [], within_s)
        line = stdout.readline() if readable else b""
        if not line:
            status = self.wait(EXIT_S) if readable else None  # readable: the process has ended
            self.kill()
            raise CannotStartError(
                f"the {self._name} was not ready after {within_s:g} s; see the lines above"
                if status is None
                else f"the {self._name} exited with status {status}; see the lines above"
            )
        report: dict[str, Any] = json.loads(line)
        if "error" in report:
            self.wait()
            raise CannotStartError(str(report["error"]))
        return report

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def wait(self, within_s: float | None = None) -> int | None:
        """The exit status, or None if it does not end within that time."""
        try:
            status = self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            return None
        self._close_pipes()
        return status

    def stop(self, within_s: float = STOP_S) -> int:
        """Terminate it; kill it if it has not stopped within that time."""
        if self._process.poll() is None:
            self._process.terminate()
        status = self.wait(within_s)
        return self.kill() if status is None else status

    def kill(self) -> int:
        """Kill it immediately; the exit status."""
        self._process.kill()
        status = self.wait()
        assert status is not None
        return status

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class BrokerProcess(ChildProcess):
    """A broker as a child process."""

    def __init__(self, options: BrokerOptions) -> None:
        super().__init__("broker", broker_process.command_line(options))


class HttpProcess(ChildProcess):
    """The HTTP services as a child process. It loads before it is given its options."""

    def __init__(self) -> None:
        super().__init__("HTTP process", http_process.command_line(None))

    def configure(self, options: HttpOptions) -> None:
        """Say what to serve."""
        stdin = self._process.stdin
        assert stdin is not None
        with suppress(BrokenPipeError):  # it ended: `wait_ready` reports that
            stdin.write(options.to_json().encode() + b"\n")
            stdin.flush()


class _StopRequested(Exception):  # noqa: N818 - not an error
    """SIGTERM or SIGINT arrived."""


class _Signals:
    """SIGTERM and SIGINT raise `_StopRequested` once, between `begin` and `end`."""

    def __init__(self) -> None:
        self._is_requested = self._may_raise = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def begin(self) -> None:
        """All children are known from here on. A signal that came before raises here."""
        self._may_raise = True
        if self._is_requested:
            self._raise()

    def end(self) -> None:
        """The processes are being stopped: ignore further signals until the end of this process."""
        self._may_raise = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._is_requested = True
        if self._may_raise:
            self._raise()

    def _raise(self) -> None:
        self._may_raise = False
        raise _StopRequested


def supervise(
    options: BrokerOptions | None,
    http_options: HttpOptions | None,
    on_ready: Callable[[dict[str, Any]], None],
) -> int:
    """Run until a signal arrives or a process ends; the exit status.

    Without `http_options` only the broker is started. With both, their `kafka` is replaced by the
    broker's address. Without `options` no broker is started: `kafka` is an existing cluster.
    """
    signals = _Signals()
    broker = None if options is None else BrokerProcess(options)
    http = None if http_options is None else HttpProcess()
    children = [child for child in (http, broker) if child is not None]
    report: dict[str, Any] = {"kafka": "", "dir": None}
    try:
        signals.begin()
        if broker is not None:
            report = broker.wait_ready()
        kafka, url = report["kafka"], None
        if http is not None and http_options is not None:
            kafka = kafka or http_options.kafka
            http.configure(replace(http_options, kafka=kafka))
            url = http.wait_ready()["http"]
        metrics = report.get("metrics") if url is None else f"{url}/metrics/targets"
        where = {"kafka": kafka, "http": url, "metrics": metrics}
        on_ready({**where, "pid": os.getpid(), "dir": report["dir"]})
        ended, _, _ = select.select(children, [], [])  # readable only when one ends
    except _StopRequested:
        return 0
    finally:
        signals.end()
        for child in children:  # the broker last: the others use it
            child.stop(STOP_S)
        if options is not None and options.ephemeral and report["dir"] is not None:
            shutil.rmtree(report["dir"], ignore_errors=True)  # a killed broker leaves it
    if broker not in ended:
        raise CannotStartError("the HTTP process ended; see the lines above. Start again")
    raise CannotStartError("the broker ended; see the lines above. Start again to recover its logs")
