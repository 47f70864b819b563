"""The event loop that one simulated process sees. Real asyncio code runs on it unchanged.

Executors run their work in turn, after a delay, on the same thread. A process that is killed has
its loop closed: nothing of it runs any more, not even cleanup. A paused one runs everything later.
"""

from __future__ import annotations

import asyncio
import inspect
import traceback
import weakref
from asyncio.events import _set_running_loop
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from tests.support.cluster_simulation.world import EPOCH_MS, START_S

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextvars import Context

    from tests.support.cluster_simulation.network import Network, SimulatedServer
    from tests.support.cluster_simulation.world import World

T = TypeVar("T")


class SimulatedLoop:
    """One process: its callbacks, its host name on the network, its clocks.

    Has of `asyncio.AbstractEventLoop` what the product uses.
    """

    def __init__(self, world: World, network: Network, host: str) -> None:
        self.world = world
        self.network = network
        self.host = host
        self.is_paused = False
        self.deferred: list[asyncio.Handle] = []  # due while paused
        self.executor_delay_s = (0.0002, 0.002)  # of work given to a thread
        self.wall_offset_ms = 0  # the time of day may be set
        self._is_closed = False
        self._busy_until_s: dict[Any, float] = {}  # by executor
        self._tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self._unfinished: list[asyncio.Task[Any]] = []  # when it was killed
        self._self = cast("asyncio.AbstractEventLoop", self)

    # What the simulation does with it.

    def run(self, handle: asyncio.Handle) -> None:
        """Run one callback as this loop."""
        _set_running_loop(self._self)
        try:
            handle._run()  # noqa: SLF001 - what asyncio's own loops call
        finally:
            _set_running_loop(None)

    def pause(self) -> None:
        """Pause, as after SIGSTOP."""
        self.is_paused = True

    def resume(self) -> None:
        """Run what fell due meanwhile, then go on."""
        self.is_paused = False
        deferred, self.deferred = self.deferred, []
        for handle in deferred:
            self.world.schedule(self, handle, self.world.now_s)

    def kill(self) -> None:
        """End the process: nothing of it runs any more."""
        self._is_closed = True
        self.deferred.clear()
        self._unfinished = [task for task in self._tasks if not task.done()]

    def close_coroutines(self) -> None:
        """End the coroutines of a killed process now, not when they happen to be collected.

        One whose cleanup waits for something would fail whichever test runs at that time.
        """
        unfinished, self._unfinished = self._unfinished, []
        for task in unfinished:
            coroutine: Any = task.get_coro()
            while inspect.getcoroutinestate(coroutine) != inspect.CORO_CLOSED:
                with suppress(Exception):  # cleanup finds its loop closed, or waits once more
                    coroutine.close()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin a task from outside the loop."""
        task = asyncio.Task(work, loop=self._self)
        self._tasks.add(task)
        return task

    def steady_ms(self) -> int:
        """The process's monotonic clock."""
        return int(self.world.now_s * 1000)

    def wall_ms(self) -> int:
        """The process's time of day."""
        return EPOCH_MS + int((self.world.now_s - START_S) * 1000) + self.wall_offset_ms

    # What asyncio code calls.

    def time(self) -> float:
        return self.world.now_s

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self._self, context)
        self.world.schedule(self, handle, self.world.now_s)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + max(delay, 0), callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self._self, context)
        self.world.schedule(self, handle, when)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self._self)

    def create_task(
        self,
        coro: Any,
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self._self, name=name, context=context)
        self._tasks.add(task)
        return task

    def run_in_executor(
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - the future carries it, as a thread's would
                future.set_exception(error)
            else:
                future.set_result(result)

        due_s = self.time() + self.world.rng.uniform(*self.executor_delay_s)
        if executor is not None:  # all executors of a broker have one thread: work stays in order
            due_s = max(due_s, self._busy_until_s.get(executor, 0.0))
            self._busy_until_s[executor] = due_s
        self.call_at(due_s, work)
        return future

    async def create_server(
        self, protocol_factory: Any, host: str, port: int, *, backlog: int = 100
    ) -> SimulatedServer:
        return self.network.listen(self, protocol_factory, port)

    async def create_connection(
        self, protocol_factory: Any, host: str, port: int, *, ssl: None = None
    ) -> tuple[Any, Any]:
        return await self.network.connect(self, protocol_factory, host, port)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self._is_closed

    def is_closed(self) -> bool:
        return self._is_closed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A task or callback failed and its error was not read: the simulation fails."""
        if self._is_closed:  # of what a killed process left behind
            return
        error = context.get("exception")
        shown = "".join(traceback.format_exception(error)) if error is not None else ""
        self.world.failures.append(f"{self.host}: {context.get('message')}\n{shown}")

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Asyncio's hook; a cancelled event is skipped when it is due."""

    def stop(self) -> NoReturn:
        raise AssertionError("the world decides when a loop ends")
