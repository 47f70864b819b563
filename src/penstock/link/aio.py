"""The link on an event loop: one connection, and a cluster of them."""

import asyncio
import random
import secrets
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar, cast

from penstock.clock import monotonic_ms
from penstock.closing import AsyncClosing
from penstock.errors import Malformed
from penstock.link.connection import (
    LinkConnection,
    Response,
    cannot_connect,
    connect_timeout,
    response_timeout,
)
from penstock.link.operation import (
    FAILURES,
    Drive,
    Effect,
    Emit,
    Pause,
    Receive,
    Request,
    Send,
    request_of,
)
from penstock.link.routing import Operation, Routes, StreamOperation
from penstock.link.settings import (
    DEFAULTS,
    Address,
    LinkSettings,
    UnreachableError,
    read_bootstrap,
    tls_context,
)
from penstock.protocol.message import Message

_SECOND_MS: Final = 1000
T = TypeVar("T")
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class AsyncLink(asyncio.BufferedProtocol):
    """A connection to one broker. Requests are pipelined; responses come in order.

    A response that is late ends the connection: those behind it would be as late.
    """

    def __init__(self, address: Address, settings: LinkSettings = DEFAULTS) -> None:
        self.address = address
        self._settings = settings
        self._connection = LinkConnection(address, settings)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._failure: Exception | None = None
        self._may_write = asyncio.Event()  # neither too many bytes unsent nor too many in flight
        self._may_write.set()
        self._is_transport_full = False
        self._closed: asyncio.Future[None] = self._loop.create_future()

    @classmethod
    async def connect(cls, address: Address, settings: LinkSettings = DEFAULTS) -> "AsyncLink":
        """Connect, negotiate versions and log in."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(settings.connect_timeout_ms / _SECOND_MS):
                _, link = await loop.create_connection(
                    lambda: cls(address, settings),
                    address.host,
                    address.port,
                    ssl=None if settings.tls is None else tls_context(settings.tls),
                )
        except TimeoutError as error:
            raise connect_timeout(address, settings) from error
        except OSError as error:
            raise cannot_connect(address, error) from error
        try:
            await link.handshake()
        except BaseException:
            link.abort()  # without a wait: the coroutine may be closed with its loop
            raise
        return link

    async def handshake(self) -> None:
        """Negotiate versions and log in; once, before any other request."""
        steps = self._connection.open(nonce=secrets.token_urlsafe())
        try:
            request = next(steps)
            while True:
                request = steps.send(await self.send(request))
        except StopIteration:
            return

    @property
    def is_open(self) -> bool:
        return self._failure is None

    @property
    def features(self) -> dict[str, int]:
        """The cluster's finalized features."""
        return self._connection.features

    async def call(
        self,
        message: Message[RequestT, ResponseT],
        body: RequestT,
        *,
        timeout_ms: int | None = None,
    ) -> ResponseT:
        """The response to a request in the newest version that both sides know."""
        request = request_of(message, body)
        response: ResponseT = await self.send(request, timeout_ms=timeout_ms)
        return response

    async def send(self, request: Request[Any], *, timeout_ms: int | None = None) -> Any:
        """Send a request and wait for its response; None if it has none."""
        await self.ready()
        future = self.start(request)
        return await self.response(future, request, timeout_ms=timeout_ms)

    async def ready(self) -> None:
        """Wait until one more request may be sent."""
        while not self._may_write.is_set():  # another task may have been faster
            await self._may_write.wait()

    def start(self, request: Request[Any]) -> "asyncio.Future[Any]":
        """Send now; the future is the response."""
        if self._failure is not None:
            raise self._failure
        assert self._transport is not None
        outgoing = self._connection.write(request)
        future = self._loop.create_future()
        if outgoing.number is None:
            future.set_result(None)
        else:
            self._pending[outgoing.number] = future
        self._transport.writelines(outgoing.parts)
        self._update_may_write()
        return future

    async def response(
        self,
        future: "asyncio.Future[Any]",
        request: Request[Any],
        *,
        timeout_ms: int | None = None,
    ) -> Any:
        """Wait for the response to a request that was started."""
        limit_ms = self._settings.request_timeout_ms if timeout_ms is None else timeout_ms
        done, _ = await asyncio.wait((future,), timeout=max(0, limit_ms) / _SECOND_MS)
        if not done:
            self._end(response_timeout(self.address, request, limit_ms))
        return await future

    def abort(self) -> None:
        """End the connection now; requests in flight fail."""
        self._end(UnreachableError(f"the connection to broker {self.address} was closed here"))

    async def close(self) -> None:
        """End the connection; requests in flight fail."""
        self.abort()
        await self._closed

    def _end(self, failure: Exception) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        self._may_write.set()
        pending, self._pending = self._pending, {}
        for future in pending.values():
            if not future.done():
                future.set_exception(failure)
                future.exception()  # retrieved: the task that waited may be cancelled
        if self._transport is None:
            self._closed.set_result(None)
        else:
            self._transport.abort()

    def _update_may_write(self) -> None:
        is_full = self._connection.in_flight >= self._settings.in_flight_max
        if (self._is_transport_full or is_full) and self._failure is None:
            self._may_write.clear()
        else:
            self._may_write.set()

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's has the same methods

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._connection.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            responses = self._connection.received(nbytes)
        except Malformed as error:
            self._end(error)
            return
        for response in responses:
            self._deliver(response)
        self._update_may_write()

    def _deliver(self, response: Response) -> None:
        future = self._pending.pop(response.number, None)
        if future is not None and not future.done():  # the task that waited may be cancelled
            future.set_result(response.body)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(
            UnreachableError(self._connection.lost(str(exc) if exc else "closed by the broker"))
        )
        if not self._closed.done():
            self._closed.set_result(None)

    def pause_writing(self) -> None:
        self._is_transport_full = True
        self._update_may_write()

    def resume_writing(self) -> None:
        self._is_transport_full = False
        self._update_may_write()


class _Ticket(NamedTuple):
    """A request in flight, or why it could not be sent."""

    link: AsyncLink | None
    future: "asyncio.Future[Any]"
    sent: Send


class AsyncCluster(AsyncClosing):
    """Connections to the brokers of a cluster, opened when first needed and kept.

    `await cluster.run(end_offsets(partitions))`; the operations have a module for each family.
    """

    def __init__(self, bootstrap: str, settings: LinkSettings = DEFAULTS) -> None:
        self.settings = settings
        self.routes: Final = Routes(
            read_bootstrap(bootstrap), settings, monotonic_ms, random.random
        )
        self._links: dict[Address, asyncio.Task[AsyncLink]] = {}

    async def run(self, operation: Operation[T]) -> T:
        """Perform an operation to its end."""
        drive = Drive(operation(self.routes))
        tickets: list[_Ticket] = []
        try:
            while drive.effect is not None:
                assert not isinstance(drive.effect, Emit), "streams are run by `stream`"
                await self._advance(drive, tickets)
            return drive.result
        finally:
            drive.close()
            _abandon(tickets)

    async def stream(self, operation: StreamOperation[T]) -> AsyncGenerator[T, None]:
        """Perform an operation that emits items."""
        drive = Drive(operation(self.routes))
        tickets: list[_Ticket] = []
        try:
            while drive.effect is not None:
                if isinstance(drive.effect, Emit):
                    yield drive.effect.item
                    drive.resume(None)
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
            drive.resume(outcome)

    async def _perform(self, effect: Effect | None, tickets: list[_Ticket]) -> Any:
        match effect:
            case Send():
                ticket = await self._send(effect)
                tickets.append(ticket)
                return ticket
            case Receive(ticket):
                tickets.remove(ticket)
                if ticket.link is None:
                    return await ticket.future
                return await ticket.link.response(
                    ticket.future, ticket.sent.request, timeout_ms=ticket.sent.timeout_ms
                )
            case Pause(duration_ms):
                return await asyncio.sleep(duration_ms / _SECOND_MS)
            case _:
                raise AssertionError(f"{effect} cannot be performed")

    async def _send(self, send: Send) -> _Ticket:
        try:
            link = await self._link(send.address)
            await link.ready()
            return _Ticket(link, link.start(send.request), send)
        except FAILURES as failure:
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            future.set_exception(self.routes.explained(send.address, failure))
            future.exception()  # retrieved: Receive raises it, if it follows
            return _Ticket(None, future, send)

    async def _link(self, address: Address) -> AsyncLink:
        """The connection to a broker; callers share the one that is being opened."""
        task = self._links.get(address)
        if task is None or (task.done() and not _is_open(task)):
            task = asyncio.create_task(AsyncLink.connect(address, self.settings))
            task.add_done_callback(_is_open)  # retrieves its failure, also if no caller waits
            self._links[address] = task
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Close all connections."""
        links, self._links = self._links, {}
        for task in links.values():
            if not task.done():
                task.cancel()
            with suppress(asyncio.CancelledError, *FAILURES):
                await (await task).close()


def _is_open(task: "asyncio.Task[AsyncLink]") -> bool:
    return not task.cancelled() and task.exception() is None and task.result().is_open


def _abandon(tickets: list[_Ticket]) -> None:
    """Drop the responses that no operation waits for, when they come."""
    for ticket in tickets:
        ticket.future.cancel()
