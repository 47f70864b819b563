"""Run a Spark worker module that is connected to Spark before it imports anything.

Spark gives the Python process of a streaming source 10 s to connect (a constant, no setting), and
that process imports pyspark first: about a second of CPU, and more than 10 s on a machine that
is busy with other tests. The connection comes first here, and the module then gets this socket
instead of its own.
"""

import os
import runpy
import socket
import sys
from typing import Any


def connect_first(port: int) -> None:
    """Connect now; the next connection to this port takes over what was connected."""
    early = socket.create_connection(("127.0.0.1", port))
    connect = socket.socket.connect

    def take_over(self: socket.socket, address: Any) -> None:
        if address != ("127.0.0.1", port):
            connect(self, address)
            return
        early.setblocking(False)  # as Python expects of a socket with a time-out
        os.dup2(early.fileno(), self.fileno())
        early.close()
        setattr(socket.socket, "connect", connect)  # noqa: B010 - mypy allows no assignment here

    setattr(socket.socket, "connect", take_over)  # noqa: B010 - mypy allows no assignment here


if __name__ == "__main__":
    _, option, module, *arguments = sys.argv
    assert option == "-m", sys.argv
    connect_first(int(os.environ["PYTHON_WORKER_FACTORY_PORT"]))
    sys.argv = [module, *arguments]
    sys.path[0] = ""  # as `python -m` has it
    runpy.run_module(module, run_name="__main__", alter_sys=True)
