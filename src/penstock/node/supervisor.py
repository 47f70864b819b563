"""Watches over the processes of `penstock up`: starts them, says when all are ready, stops them.

Imports nothing of what it starts, so that the broker is on its way before anything else is loaded.
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
# A broker waits 4 s for pending answers, then closes its partitions: a second or more for each
# 50 000, and several times that on a busy machine. Only one that hangs is ended the hard way.
STOP_S: Final = 60.0


class CannotStart(Exception):
    """A process did not come up; the message says why and what to do."""


class ChildProcess:
    """A process of ours that says in one line of JSON what became of its start."""

    def __init__(self, name: str, command: list[str]) -> None:
        self._name = name
        # Ctrl-C reaches every process of a terminal: the parent alone hears it, and stops them
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)

    def fileno(self) -> int:
        """Readable when the process has something to say, or has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    @property
    def pid(self) -> int:
        """Of the child."""
        return self._process.pid

    def wait_ready(self, within_s: float = READY_S) -> dict[str, Any]:
        """What it says of itself once it serves; CannotStart with its reason."""
        stdout = self._process.stdout
        assert stdout is not None
        readable, _, _ = select.select([stdout], [], [], within_s)
        line = stdout.readline() if readable else b""
        if not line:
            status = self._process.poll()
            self.kill()
            how = f"took longer than {within_s:g} s" if status is None else f"ended with {status}"
            raise CannotStart(f"the {self._name} {how} before it was ready; see the lines above")
        told: dict[str, Any] = json.loads(line)
        if "error" in told:
            self.wait()
            raise CannotStart(str(told["error"]))
        return told

    @property
    def is_alive(self) -> bool:
        """Whether it runs still."""
        return self._process.poll() is None

    def wait(self, within_s: float | None = None) -> int | None:
        """The exit status, or None if it still runs by then."""
        try:
            status = self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            return None
        self._close_pipes()
        return status

    def stop(self, within_s: float = STOP_S) -> int:
        """Ask it to stop, and insist when it has not by then."""
        if self._process.poll() is None:
            self._process.terminate()
        status = self.wait(within_s)
        return self.kill() if status is None else status

    def kill(self) -> int:
        """End it at once, as a power cut of the process would."""
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
    """The HTTP services as a child process. It is loaded before it knows what it is to serve."""

    def __init__(self) -> None:
        super().__init__("HTTP process", http_process.command_line(None))

    def tell(self, options: HttpOptions) -> None:
        """What to serve."""
        stdin = self._process.stdin
        assert stdin is not None
        with suppress(BrokenPipeError):  # it died: that is told by who waits for it
            stdin.write(options.to_json().encode() + b"\n")
            stdin.flush()


class _Asked(Exception):
    """A signal asked to stop."""


class _Signals:
    """SIGTERM and SIGINT raise `_Asked` once, between `begin` and `end`."""

    def __init__(self) -> None:
        self._is_asked = self._may_raise = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def begin(self) -> None:
        """Everything that must be stopped is known by now. One that came before raises here."""
        self._may_raise = True
        if self._is_asked:
            self._raise()

    def end(self) -> None:
        """The stop is under way: more of them change nothing, to the very end of the process."""
        self._may_raise = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._is_asked = True
        if self._may_raise:
            self._raise()

    def _raise(self) -> None:
        self._may_raise = False
        raise _Asked


def supervise(
    options: BrokerOptions | None,
    http_options: HttpOptions | None,
    on_ready: Callable[[dict[str, Any]], None],
) -> int:
    """Run until a signal says stop, or a process dies; the exit status.

    Without `http_options` the broker is alone. With both, their `kafka` is replaced by where the
    broker is; without `options` no broker is started, and it is a cluster that is there already.
    """
    signals = _Signals()
    broker = None if options is None else BrokerProcess(options)
    http = None if http_options is None else HttpProcess()
    children = [child for child in (http, broker) if child is not None]
    told: dict[str, Any] = {"kafka": "", "dir": None}
    try:
        signals.begin()
        if broker is not None:
            told = broker.wait_ready()
        kafka, url = told["kafka"], None
        if http is not None and http_options is not None:
            kafka = kafka or http_options.kafka
            http.tell(replace(http_options, kafka=kafka))
            url = http.wait_ready()["http"]
        on_ready({"kafka": kafka, "http": url, "pid": os.getpid(), "dir": told["dir"]})
        ended, _, _ = select.select(children, [], [])  # nobody has more to say than that it ends
    except _Asked:
        return 0
    finally:
        signals.end()
        for child in children:  # the broker last, for the others lean on it
            child.stop(STOP_S)
        if options is not None and options.ephemeral and told["dir"] is not None:
            shutil.rmtree(told["dir"], ignore_errors=True)  # a broker that was killed could not
    if broker not in ended:
        raise CannotStart("the HTTP process died; its last lines are above. Start again")
    raise CannotStart("the broker died; its last lines are above. Start again to recover its logs")
