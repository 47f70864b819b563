"""The platform of the demo: `penstock up` as a child process, on a temporary or a given folder.

However the demo ends, the child is stopped cleanly, and a temporary folder is deleted.
"""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

KAFKA_PORT = 9092
HTTP_PORT = 8081
STOP_S = 40


class PlatformAddress(NamedTuple):
    """PlatformAddress the platform can be reached, and its folder."""

    kafka: str
    registry: str
    folder: str


@contextmanager
def platform_up(folder: Path | None) -> Iterator[PlatformAddress]:
    """A broker and a registry for a `with` block; on the default ports if they are free."""
    data = ["--ephemeral"] if folder is None else ["--dir", str(folder)]
    ports = ["--kafka-port", str(_free(KAFKA_PORT)), "--http-port", str(_free(HTTP_PORT))]
    command = [sys.executable, "-m", "penstock.cli.main", "up", "--json", *data, *ports]
    # Its own session: Ctrl-C reaches only the demo, which stops the platform last.
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert child.stdout is not None
    try:
        line = child.stdout.readline()
        if not line:
            raise RuntimeError("the platform did not start; its output is above")
        ready = json.loads(line)
        yield PlatformAddress(ready["kafka"], ready["http"], ready["dir"])
    finally:
        _stop(child)
        child.stdout.close()


def _free(port: int) -> int:
    """The port, or 0 (any) if it is in use."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return 0
    return port


def _stop(child: "subprocess.Popen[str]") -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C does not interrupt this
    try:
        child.terminate()
        child.wait(STOP_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    finally:
        signal.signal(signal.SIGINT, before)
