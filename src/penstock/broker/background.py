"""Work that goes on as long as its broker does, such as heartbeats and fetches from a leader.

It handles the failures that can happen. If it ends with any other error, that is a bug, and the
broker must not serve on without it: the loop's exception handler learns that the error is fatal.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Coroutine

FATAL: Final = "fatal"  # in the context of the loop's exception handler


def start_background(name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Run `work` until it is cancelled. Needs the running event loop."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    task.add_done_callback(_on_end)
    return task


def report_bug(name: str, error: BaseException) -> None:
    """Work that cannot be resumed has failed."""
    context = {"message": f"{name} failed", "exception": error, FATAL: True}
    asyncio.get_running_loop().call_exception_handler(context)


def _on_end(task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        report_bug(task.get_name(), error)
