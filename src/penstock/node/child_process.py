"""What the child processes of a node have in common: their end.

Imports nothing heavy: a process loads it first.
"""

import asyncio
import os
import signal
import sys
from contextlib import suppress


def stop_with_parent() -> None:
    """Stop as on SIGTERM when standard input ends: the parent has ended."""
    loop = asyncio.get_running_loop()

    def on_input() -> None:
        with suppress(OSError):
            if os.read(sys.stdin.fileno(), 4096):
                return
        loop.remove_reader(sys.stdin.fileno())
        os.kill(os.getpid(), signal.SIGTERM)

    loop.add_reader(sys.stdin.fileno(), on_input)
