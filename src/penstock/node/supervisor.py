"""Watches over the processes of `penstock up`: starts them, says when all are ready, stops them.

Imports nothing of what it starts, so that the broker is on its way before anything else is loaded.
"""

import json
import os
import select
import signal
import subprocess
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from penstock.node.broker_process import BrokerOptions, command_line

READY_S: Final = 120.0  # after a hard stop a large folder is recovered first
STOP_S: Final = 30.0  # a broker stops within 5; only one that hangs is ended the hard way


class CannotStart(Exception):
    """A process did not come up; the message says why and what to do."""


class BrokerProcess:
    """A broker as a child process."""

    def __init__(self, options: BrokerOptions) -> None:
        self._process = subprocess.Popen(
            command_line(options), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    @property
    def pid(self) -> int:
        """Of the child."""
        return self._process.pid

    def wait_ready(self, within_s: float = READY_S) -> dict[str, Any]:
        """What the broker says of itself once it serves; CannotStart with its reason."""
        stdout = self._process.stdout
        assert stdout is not None
        readable, _, _ = select.select([stdout], [], [], within_s)
        line = stdout.readline() if readable else b""
        if not line:
            status = self._process.poll()
            self.kill()
            how = f"took longer than {within_s:g} s" if status is None else f"ended with {status}"
            raise CannotStart(f"the broker {how} before it was ready; see the lines above")
        told: dict[str, Any] = json.loads(line)
        if "error" in told:
            self.wait()
            raise CannotStart(str(told["error"]))
        return told

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


class _Asked(Exception):
    """A signal asked to stop."""


def supervise(options: BrokerOptions, on_ready: Callable[[dict[str, Any]], None]) -> int:
    """Run until a signal says stop, or the broker dies; the exit status."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _on_signal)
    broker = BrokerProcess(options)
    try:
        told = broker.wait_ready()
        on_ready({"kafka": told["kafka"], "http": None, "pid": os.getpid(), "dir": told["dir"]})
        broker.wait()
    except _Asked:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)  # once is enough: the stop is under way
        broker.stop()
        return 0
    raise CannotStart("the broker died; its last lines are above. Start again to recover its logs")


def _on_signal(number: int, frame: FrameType | None) -> None:
    raise _Asked
