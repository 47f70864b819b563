"""Supervises the processes of `penstock up`: starts them, reports when all are ready, stops them.

If the only broker ends, everything stops. One of several is started again while the others serve.

Imports nothing of what it starts, so that the broker starts before anything else is loaded.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from types import FrameType
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.node import broker_process, http_process
from penstock.node.broker_process import BrokerOptions
from penstock.node.http_process import HttpOptions

HTTP_RESTARTS_MAX: Final = 5  # within this time: then something is wrong
HTTP_RESTARTS_WITHIN_S: Final = 60.0
READY_S: Final = 120.0  # after a hard stop a large folder is recovered first
# A broker waits 4 s for pending responses, then closes its partitions: a second or more for each
# 50 000, and several times that on a busy machine. Only one that hangs is killed.
STOP_S: Final = 60.0
EXIT_S: Final = 5.0  # from the end of a process's output to its exit
STOP_SIGNAL_INTERVAL_S: Final = 0.2  # to a broker that must not wait for others
RESTART_MIN_S: Final = 0.5  # after a broker's end; doubles while it keeps ending
RESTART_MAX_S: Final = 30.0
STEADY_S: Final = 60.0  # a broker that served this long is restarted as soon as at first


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

    def stop_now(self, within_s: float = STOP_S) -> int:
        """Stop it without waiting for other brokers to take over, as a second SIGTERM requests."""
        give_up_at = time.monotonic() + within_s
        while time.monotonic() < give_up_at:
            if self._process.poll() is None:
                self._process.terminate()
            status = self.wait(STOP_SIGNAL_INTERVAL_S)
            if status is not None:
                return status
        return self.kill()

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


class RestartedBroker:
    """One of several brokers: started again whenever it ends, later each time it ends early."""

    def __init__(self, options: BrokerOptions) -> None:
        self._options = options
        self._process = BrokerProcess(options)
        self._is_ready = False
        self._ready_at = 0.0
        self._delay_s = RESTART_MIN_S
        self.restart_at: float | None = None

    def wait_ready(self) -> dict[str, Any]:
        """Its report once it serves; CannotStartError with its reason."""
        report = self._process.wait_ready()
        self._is_ready, self._ready_at = True, time.monotonic()
        return report

    @property
    def is_waiting(self) -> bool:
        """Whether it has ended and is not started again yet."""
        return self.restart_at is not None

    def fileno(self) -> int:
        """Readable when the process is ready again, or has ended."""
        return self._process.fileno()

    def on_readable(self) -> None:
        """Note what its process did, and report it."""
        try:
            if not self._is_ready:
                self.wait_ready()
                _say(f"broker {self._options.node_id} serves again, pid {self._process.pid}")
                return
            status = self._process.wait(EXIT_S)
            reason = f"ended with status {self._process.kill() if status is None else status}"
        except CannotStartError as failure:
            reason = f"did not start: {failure}"
        now = time.monotonic()
        if self._is_ready and now - self._ready_at >= STEADY_S:
            self._delay_s = RESTART_MIN_S
        _say(f"broker {self._options.node_id} {reason}; starting it again in {self._delay_s:g} s")
        self.restart_at = now + self._delay_s
        self._delay_s = min(2 * self._delay_s, RESTART_MAX_S)

    def restart(self) -> None:
        """Start it again; it is ready later."""
        self.restart_at, self._is_ready = None, False
        self._process = BrokerProcess(self._options)

    def stop(self, *, hand_over: bool) -> None:
        """Stop it, if it runs."""
        if not self.is_waiting:
            self._process.stop() if hand_over else self._process.stop_now()


def _say(line: str) -> None:
    sys.stderr.write(f"penstock up: {line}\n")
    sys.stderr.flush()


class Brokers:
    """The brokers of a node."""

    def __init__(self, options: Sequence[BrokerOptions]) -> None:
        self._all = [RestartedBroker(each) for each in options]

    def wait_ready(self) -> list[dict[str, Any]]:
        """Their reports once all serve; CannotStartError with the reason of the first that fails.

        All are waited for at the same time: those that start wait for those that fail.
        """
        reports: dict[RestartedBroker, dict[str, Any]] = {}
        give_up_at = time.monotonic() + READY_S
        while waiting := [broker for broker in self._all if broker not in reports]:
            left_s = max(0.0, give_up_at - time.monotonic())
            readable, _, _ = select.select(waiting, [], [], left_s)
            if not readable:
                raise CannotStartError(
                    f"the brokers were not ready after {READY_S:g} s; see the lines above"
                )
            reports |= {broker: broker.wait_ready() for broker in readable}
        return [reports[broker] for broker in self._all]

    def watch(self, http: HttpProcess | None) -> bool:
        """Restart brokers that end. Returns when one ends that is not: whether it is `http`."""
        while True:
            running = [broker for broker in self._all if not broker.is_waiting]
            due = [broker.restart_at for broker in self._all if broker.restart_at is not None]
            timeout_s = max(0.0, min(due) - time.monotonic()) if due else None
            children: list[RestartedBroker | HttpProcess] = [*running]
            readable, _, _ = select.select(
                [*children, http] if http else children, [], [], timeout_s
            )
            for child in readable:
                if isinstance(child, HttpProcess) or len(self._all) == 1:
                    return child is http
                child.on_readable()
            for broker in self._all:
                if broker.restart_at is not None and broker.restart_at <= time.monotonic():
                    broker.restart()

    def stop(self) -> None:
        """Stop one after the other, so that leaders move to those that are left.

        The last two cannot wait for consent: without a majority there is no controller to give it.
        """
        last = len(self._all) - 1
        for index, broker in enumerate(self._all):
            broker.stop(hand_over=last == 0 or index < last - 1)


def supervise(
    options: Sequence[BrokerOptions],
    http_options: HttpOptions | None,
    on_ready: Callable[[dict[str, Any]], None],
) -> int:
    """Run until a signal arrives or a process ends that is not restarted; the exit status.

    Without `http_options` only the brokers are started. With both, their `kafka` is replaced by the
    brokers' addresses. Without `options` no broker is started: `kafka` is an existing cluster.
    """
    signals = _Signals()
    brokers = Brokers(options)
    http = None if http_options is None else HttpProcess()
    reports: list[dict[str, Any]] = []
    try:
        signals.begin()
        reports = brokers.wait_ready()
        kafka, url = ",".join(report["kafka"] for report in reports), None
        if http is not None and http_options is not None:
            kafka = kafka or http_options.kafka
            http.configure(replace(http_options, kafka=kafka))
            url = http.wait_ready()["http"]
        metrics = reports[0]["metrics"] if len(reports) == 1 else None
        metrics = metrics if url is None else f"{url}/metrics/targets"
        where = {"kafka": kafka, "http": url, "metrics": metrics, "pid": os.getpid()}
        on_ready({**where, "dir": _folder_of(reports), "brokers": reports})
        restarts: deque[float] = deque(maxlen=HTTP_RESTARTS_MAX)
        while (was_http := brokers.watch(http)) and _may_restart(restarts):
            assert http is not None
            assert http_options is not None, "only an HTTP process that was started can end"
            _say("the HTTP process ended; starting it again")
            http.kill()
            http = _restarted(replace(http_options, kafka=kafka, http_port=_port_of(url)))
            _say(f"the HTTP process serves again, pid {http.pid}")
    except _StopRequested:
        return 0
    finally:
        signals.end()
        if http is not None:  # before the brokers, which it uses
            http.stop()
        brokers.stop()
        if options and options[0].ephemeral and reports:
            shutil.rmtree(reports[0]["dir"], ignore_errors=True)  # a killed broker leaves it
    if was_http:
        raise CannotStartError("the HTTP process ended; see the lines above. Start again")
    raise CannotStartError("the broker ended; see the lines above. Start again to recover its logs")


def _may_restart(restarts: deque[float]) -> bool:
    """Count a restart of the HTTP process; False if there were too many in a short time."""
    now = time.monotonic()
    is_rare = len(restarts) < HTTP_RESTARTS_MAX or now - restarts[0] > HTTP_RESTARTS_WITHIN_S
    restarts.append(now)
    return is_rare


def _port_of(url: str | None) -> int:
    return urlsplit(str(url)).port or 0


def _restarted(options: HttpOptions) -> HttpProcess:
    process = HttpProcess()
    process.configure(options)
    try:
        process.wait_ready()
    except BaseException:
        process.kill()
        raise
    return process


def _folder_of(reports: Sequence[dict[str, Any]]) -> str | None:
    """The data folder of the only broker, or the one that has those of all."""
    folders = [str(report["dir"]) for report in reports]
    return os.path.commonpath(folders) if folders else None
