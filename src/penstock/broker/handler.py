"""What a handler is: a row of the API table, its arguments, and what it may return.

Handlers take effect in arrival order and never await. A response that is not known yet is a
`Deferred`; the connection starts its next request meanwhile and keeps responses in order.
A request may hold views of the connection's buffer, which are invalid when the handler returns.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from penstock.machine import Deferred
from penstock.protocol.framing import NO_HEADER, HeaderTail

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from penstock.broker.broker import Broker
    from penstock.broker.counts import ApiCounts
    from penstock.broker.permissions import Rule
    from penstock.broker.refused_batches import RefusedBatches
    from penstock.protocol.api import Api
    from penstock.protocol.message import Message

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
DeferredT = TypeVar("DeferredT", bound=Deferred[Any])


class Held(Deferred[ResponseT]):
    """A response whose request has not taken effect: the connection starts no other before.

    Used where a request must wait *before* it acts (records opened in a thread, a transaction
    verified by its coordinator), so that a later request cannot overtake it.
    """

    __slots__ = ("_is_released", "_on_release")

    def __init__(self, on_cancel: Callable[[], object] | None = None) -> None:
        super().__init__(on_cancel)
        self._is_released = False
        self._on_release: Callable[[], None] | None = None

    def release(self) -> None:
        """The request has taken effect: the next may start. The response may come later."""
        if not self._is_released:
            self._is_released = True
            if self._on_release is not None:
                self._on_release()

    def resolve(self, result: ResponseT | Exception) -> None:
        """A response means that the request has taken effect."""
        self.release()
        super().resolve(result)

    def on_release(self, call: Callable[[], None]) -> None:
        """Call when released: now if it is."""
        self._on_release = call
        if self._is_released:
            call()


# None: no response at all (acks=0).
Answer: TypeAlias = ResponseT | Deferred[ResponseT] | None


def deferred_from(work: Coroutine[Any, Any, ResponseT]) -> Deferred[ResponseT]:
    """Run `work` in a task; its result is the response. Other requests start meanwhile."""
    task = asyncio.get_running_loop().create_task(work)
    return _resolved_by(task, Deferred[ResponseT](task.cancel))


def hold(
    work: Callable[[Held[ResponseT]], Coroutine[Any, Any, ResponseT | None]],
) -> Held[ResponseT]:
    """Run `work` in a task; its result is the response. Other requests wait until it releases."""
    held: Held[ResponseT] = Held(lambda: task.cancel())
    task = asyncio.get_running_loop().create_task(work(held))
    return _resolved_by(task, held)


async def result_of(reply: object) -> Any:
    """Wait for a reply; raises a Refused."""
    if isinstance(reply, Deferred):
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        reply.listen(lambda result: None if future.done() else future.set_result(result))
        reply = await future
    if isinstance(reply, Exception):
        raise reply
    return reply


def _resolved_by(future: asyncio.Future[Any], deferred: DeferredT) -> DeferredT:
    def resolve(done: asyncio.Future[Any]) -> None:
        if done.cancelled():
            deferred.resolve(Disconnect("a request was cancelled"))
            return
        error = done.exception()
        if error is None:
            deferred.resolve(done.result())
        else:
            deferred.resolve(error if isinstance(error, Exception) else Disconnect(str(error)))

    future.add_done_callback(resolve)
    return deferred


class Disconnect(Exception):  # noqa: N818 - what to do, not what failed
    """The only possible response is to close the connection; says why."""


ANONYMOUS: Final = "User:ANONYMOUS"


class Client:
    """The client of a connection. Its client id may differ by request."""

    __slots__ = (
        "header_tails",
        "host",
        "listener",
        "on_closed",
        "port",
        "principal",
        "refused_batches",
    )

    def __init__(
        self, host: str, port: int, *, listener: str = "PLAINTEXT", principal: str = ANONYMOUS
    ) -> None:
        # Of the last request: with a non-flexible header, with a flexible one.
        self.header_tails: list[HeaderTail] = [NO_HEADER, NO_HEADER]
        self.host: str = host
        self.port: int = port
        self.listener: str = listener
        self.principal: str = principal
        self.on_closed: Callable[[], None] | None = None  # called when the connection has ended
        self.refused_batches: RefusedBatches | None = None  # None: none was refused

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Context:
    """One request: its client and version, and the broker that serves it."""

    __slots__ = (
        "api_version",
        "broker",
        "client",
        "client_id",
        "correlation_id",
        "counts",
        "has_tags",
        "message",
        "throttle_ms",
    )

    def __init__(
        self,
        broker: Broker,
        client: Client,
        client_id: str | None,
        message: Message[Any, Any],
        api_version: int,
        correlation_id: int,
        has_tags: bool,
        counts: ApiCounts,
    ) -> None:
        self.broker: Broker = broker
        self.client: Client = client
        self.client_id: str | None = client_id
        self.message: Message[Any, Any] = message
        self.api_version: int = api_version
        self.correlation_id: int = correlation_id
        self.has_tags: bool = has_tags  # the header of its response ends in tagged fields
        self.counts: ApiCounts = counts  # of its API
        self.throttle_ms: int = 0  # set when a quota is charged: nothing is read for this long

    @property
    def principal(self) -> str:
        """The authenticated user of the client."""
        return self.client.principal

    @property
    def host(self) -> str:
        """The address that the client connects from."""
        return self.client.host


def never(_request: object) -> bool:
    """Served once this broker is ready, and not before."""
    return False


def always(_request: object) -> bool:
    """Served while this broker starts: other brokers depend on it."""
    return True


class Forwards(Enum):
    """Whether requests go to the active controller, because only it can decide them."""

    NEVER = "never"
    WHOLE = "whole"
    PARTLY = "partly"  # the handler forwards what is not for this broker itself


@dataclass(frozen=True, slots=True)
class Handler(Generic[RequestT, ResponseT]):
    """One row of the table of what the broker serves."""

    message: Message[RequestT, ResponseT]
    versions: tuple[int, int]  # inclusive; what is served
    handle: Callable[[Context, RequestT], Answer[ResponseT]]
    allow: Rule[RequestT]
    advertised_from: int | None = None  # where clients must see an older minimum than is served
    forwards: Forwards = Forwards.NEVER
    before_ready: Callable[[RequestT], bool] = never  # whether other brokers depend on it

    @property
    def api(self) -> Api:
        return self.message.api

    @property
    def advertised(self) -> tuple[int, int]:
        """The range that ApiVersions shows."""
        first, last = self.versions
        return (first if self.advertised_from is None else self.advertised_from, last)


class ApiTable:
    """All handlers by API key."""

    def __init__(self, rows: Sequence[Handler[Any, Any]]) -> None:
        self.rows: tuple[Handler[Any, Any], ...] = tuple(sorted(rows, key=lambda row: row.api))
        self.by_key: dict[int, Handler[Any, Any]] = {row.api: row for row in rows}
        assert len(self.by_key) == len(rows), "an API has two handlers"

    def find(self, api_key: int, api_version: int) -> Handler[Any, Any] | None:
        """The handler of this key and version, if they are served."""
        row = self.by_key.get(api_key)
        if row is None or not row.versions[0] <= api_version <= row.versions[1]:
            return None
        return row
