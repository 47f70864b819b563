"""A broker process from its start to its stop: signals, the folder's lock, the event loop.

A stop may come at any time, also while the start waits for other brokers.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import uvloop

from penstock.broker.background import FATAL
from penstock.node.broker_monitor import BrokerMonitor
from penstock.node.data_folder import open_folder
from penstock.node.run_broker import RunningBroker

if TYPE_CHECKING:
    from penstock.log import LogDirectory
    from penstock.node.settings import NodeSettings

logger: Final = logging.getLogger(__name__)

OnReady: TypeAlias = Callable[[int, str], None]  # the port for clients, the URL of the metrics


async def _serve(settings: NodeSettings, on_ready: OnReady) -> None:
    """Until SIGTERM or SIGINT. A second signal ends the wait for other brokers to take over."""
    stopping = asyncio.Event()
    running: RunningBroker | None = None

    def on_signal() -> None:
        if stopping.is_set() and running is not None and running.is_joined:
            running.skip_hand_over()
        stopping.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    monitor = BrokerMonitor(settings)
    settings = await monitor.start()
    folder, identity = open_folder(settings)
    gc.disable()  # almost nothing that a start makes is garbage, and there is much to look at
    try:
        running = RunningBroker(settings, folder, identity)
        running.failed.add_done_callback(lambda _: stopping.set())
        loop.set_exception_handler(partial(_on_error, running))
        port = await _start(running, stopping)
    except BaseException:
        _release(folder)
        raise
    if port is not None:
        monitor.attach(running)
        on_ready(port, monitor.url)
        await stopping.wait()
    logger.info("stopping")
    monitor.detach()
    if running.is_joined:
        await running.stop()
    else:
        _release(folder)
    await monitor.close()
    if running.failed.done():
        raise BrokerFailedError(running.failed.result())


def _on_error(
    running: RunningBroker, loop: asyncio.AbstractEventLoop, context: dict[str, Any]
) -> None:
    """An error that was not handled is logged; if the broker cannot go on without it, it ends."""
    loop.default_exception_handler(context)
    if context.get(FATAL):
        running.fail(f"{context['message']}: {context['exception']!r}")


class BrokerFailedError(Exception):
    """The broker has stopped because it could not go on."""


async def _start(running: RunningBroker, stopping: asyncio.Event) -> int | None:
    """The port. None: a stop was requested first, for a start may wait long for other brokers."""
    start = asyncio.create_task(running.start())
    stop = asyncio.create_task(stopping.wait())
    await asyncio.wait((start, stop), return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    start.cancel()  # without effect if it is done
    await asyncio.wait((start,))
    return None if start.cancelled() else start.result()


def _release(folder: LogDirectory) -> None:
    """The start did not succeed: what was clean before is clean still."""
    try:
        folder.close()
    except OSError:
        folder.release()


def serve_broker(settings: NodeSettings, on_ready: OnReady) -> None:
    """Run a broker in this process until it is stopped."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, on_ready))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # a second one must not interrupt the end
