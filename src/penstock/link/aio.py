"""The link on an event loop: one connection, and a cluster of them."""

import asyncio
import random
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar, cast

from penstock.clock import monotonic_ms
from penstock.errors import Malformed
from penstock.link.connection import Answer, Connection
from penstock.link.operation import (
    FAILURES,
    Begin,
    Drive,
    Effect,
    Finish,
    Give,
    Pause,
    Request,
    plain,
)
from penstock.link.routing import Operation, Routes, StreamOperation
from penstock.link.settings import (
    USUAL,
    Address,
    LinkSettings,
    Unreachable,
    read_bootstrap,
    tls_context,
)
from penstock.protocol.kio_codec import api_name

_SECOND_MS: Final = 1000
T = TypeVar("T")


class Link(asyncio.BufferedProtocol):
    """A connection to one broker. Requests are pipelined; answers come in order.

    A request that is not answered in time ends the connection: those behind it would wait as long.
    """

    def __init__(self, address: Address, settings: LinkSettings = USUAL) -> None:
        self.address = address
        self._settings = settings
        self._connection = Connection(address, settings)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._failure: Exception | None = None
        self._may_write = asyncio.Event()  # neither too much unsent nor too much unanswered
        self._may_write.set()
        self._unsent_much = False
        self._gone: asyncio.Future[None] = self._loop.create_future()

    @classmethod
    async def connect(cls, address: Address, settings: LinkSettings = USUAL) -> "Link":
        """Connect, and learn what the broker speaks."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(settings.connect_ms / _SECOND_MS):
                _, link = await loop.create_connection(
                    lambda: cls(address, settings),
                    address.host,
                    address.port,
                    ssl=None if settings.tls is None else tls_context(settings.tls),
                )
        except TimeoutError as error:
            raise Unreachable(
                f"broker {address} did not take the connection in {settings.connect_ms} ms: check"
                " the address and what stands between"
            ) from error
        except OSError as error:
            raise Unreachable(
                f"no connection to broker {address} ({error}): check that it runs and listens"
            ) from error
        try:
            await link.greet()
        except BaseException:
            await link.close()
            raise
        return link

    async def greet(self) -> None:
        """Learn what the broker speaks; once, before anything else."""
        steps = self._connection.open(nonce=secrets.token_urlsafe())
        try:
            request = next(steps)
            while True:
                request = steps.send(await self.ask(request))
        except StopIteration:
            return

    @property
    def is_open(self) -> bool:
        return self._failure is None

    @property
    def features(self) -> dict[str, int]:
        """The cluster's finalized features."""
        return self._connection.features

    async def call(self, api_key: int, /, *, timeout_ms: int | None = None, **fields: Any) -> Any:
        """Ask with the fields of all versions; the response is the chosen version's entity."""
        return await self.ask(plain(api_key, **fields), timeout_ms=timeout_ms)

    async def ask(self, request: Request, *, timeout_ms: int | None = None) -> Any:
        """Ask and wait for the answer; None when there will be none."""
        await self.ready()
        future = self.begin(request)
        return await self.finish(future, request, timeout_ms=timeout_ms)

    async def ready(self) -> None:
        """Wait until one more request may be sent."""
        while not self._may_write.is_set():  # another may have taken the place that was free
            await self._may_write.wait()

    def begin(self, request: Request) -> "asyncio.Future[Any]":
        """Send now; the future is the answer."""
        if self._failure is not None:
            raise self._failure
        assert self._transport is not None
        asked = self._connection.ask(request)
        future = self._loop.create_future()
        if asked.number is None:
            future.set_result(None)
        else:
            self._waiting[asked.number] = future
        self._transport.writelines(asked.parts)
        self._admit()
        return future

    async def finish(
        self,
        future: "asyncio.Future[Any]",
        request: Request,
        *,
        timeout_ms: int | None = None,
    ) -> Any:
        """Wait for an answer that was begun."""
        span_ms = self._settings.answer_ms if timeout_ms is None else timeout_ms
        done, _ = await asyncio.wait((future,), timeout=max(0, span_ms) / _SECOND_MS)
        if not done:
            name = api_name(request.api_key)
            self._end(TimeoutError(f"broker {self.address} did not answer {name} in {span_ms} ms"))
        return await future

    async def close(self) -> None:
        """End the connection; whoever waits for an answer gets Unreachable."""
        self._end(Unreachable(f"the connection to broker {self.address} was closed here"))
        await self._gone

    def _end(self, failure: Exception) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        self._may_write.set()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(failure)
                future.exception()  # seen: whoever asked may have gone
        if self._transport is None:
            self._gone.set_result(None)
        else:
            self._transport.abort()

    def _admit(self) -> None:
        crowded = self._connection.waiting >= self._settings.waiting_max
        if (self._unsent_much or crowded) and self._failure is None:
            self._may_write.clear()
        else:
            self._may_write.set()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by name only

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._connection.room()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            answers = self._connection.received(nbytes)
        except Malformed as error:
            self._end(error)
            return
        for answer in answers:
            self._deliver(answer)
        self._admit()

    def _deliver(self, answer: Answer) -> None:
        future = self._waiting.pop(answer.number, None)
        if future is not None and not future.done():  # whoever asked may have gone
            future.set_result(answer.response)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(Unreachable(self._connection.lost(str(exc) if exc else "closed by the broker")))
        if not self._gone.done():
            self._gone.set_result(None)

    def pause_writing(self) -> None:
        self._unsent_much = True
        self._admit()

    def resume_writing(self) -> None:
        self._unsent_much = False
        self._admit()


class _Ticket(NamedTuple):
    """What was begun: an answer to come, or why there will be none."""

    link: Link | None
    future: "asyncio.Future[Any]"
    begun: Begin


class Cluster:
    """Connections to the brokers of a cluster, made when first needed and kept.

    `await cluster.run(end_offsets(partitions))`; what there is to run has a module for each family.
    """

    def __init__(self, bootstrap: str, settings: LinkSettings = USUAL) -> None:
        self.settings = settings
        self.routes = Routes(read_bootstrap(bootstrap), settings, monotonic_ms, random.random)
        self._links: dict[Address, asyncio.Task[Link]] = {}

    async def run(self, operation: Operation[T]) -> T:
        """Perform an operation to its end."""
        drive = Drive(operation(self.routes))
        tickets: list[_Ticket] = []
        try:
            while drive.effect is not None:
                assert not isinstance(drive.effect, Give), "streams are run by `stream`"
                await self._advance(drive, tickets)
            return drive.result
        finally:
            drive.close()
            _abandon(tickets)

    async def stream(self, operation: StreamOperation[T]) -> AsyncIterator[T]:
        """Perform an operation that gives items as it goes."""
        drive = Drive(operation(self.routes))
        tickets: list[_Ticket] = []
        try:
            while drive.effect is not None:
                if isinstance(drive.effect, Give):
                    yield drive.effect.item
                    drive.report(None)
                else:
                    await self._advance(drive, tickets)
        finally:
            drive.close()
            _abandon(tickets)

    async def _advance(self, drive: Drive[Any], tickets: list[_Ticket]) -> None:
        try:
            outcome = await self._perform(drive.effect, tickets)
        except FAILURES as failure:
            drive.fail(failure)
        else:
            drive.report(outcome)

    async def _perform(self, effect: Effect | None, tickets: list[_Ticket]) -> Any:
        match effect:
            case Begin():
                ticket = await self._begin(effect)
                tickets.append(ticket)
                return ticket
            case Finish(ticket):
                tickets.remove(ticket)
                if ticket.link is None:
                    return await ticket.future
                return await ticket.link.finish(
                    ticket.future, ticket.begun.request, timeout_ms=ticket.begun.timeout_ms
                )
            case Pause(span_ms):
                return await asyncio.sleep(span_ms / _SECOND_MS)
            case _:
                raise AssertionError(f"{effect} is not to be performed")

    async def _begin(self, begin: Begin) -> _Ticket:
        try:
            link = await self._link(begin.where)
            await link.ready()
            return _Ticket(link, link.begin(begin.request), begin)
        except FAILURES as failure:
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            future.set_exception(self.routes.explained(begin.where, failure))
            future.exception()  # seen: Finish raises it, if anybody asks
            return _Ticket(None, future, begin)

    async def _link(self, address: Address) -> Link:
        """The connection to a broker; whoever comes while it is being made waits for the same."""
        task = self._links.get(address)
        if task is None or (task.done() and not _is_open(task)):
            task = asyncio.create_task(Link.connect(address, self.settings))
            task.add_done_callback(_is_open)  # its failure is seen, also if nobody waits any more
            self._links[address] = task
        return await asyncio.shield(task)

    async def close(self) -> None:
        """End all connections."""
        links, self._links = self._links, {}
        for task in links.values():
            if not task.done():
                task.cancel()
            with suppress(asyncio.CancelledError, *FAILURES):
                await (await task).close()

    async def __aenter__(self) -> "Cluster":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _is_open(task: "asyncio.Task[Link]") -> bool:
    return not task.cancelled() and task.exception() is None and task.result().is_open


def _abandon(tickets: list[_Ticket]) -> None:
    """Answers nobody waits for any longer are dropped when they come."""
    for ticket in tickets:
        ticket.future.cancel()
