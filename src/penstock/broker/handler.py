"""What a handler is: a row of the API table, its arguments, and what it may return.

Handlers take effect in arrival order and never await. A response that is not known yet is a
`Deferred`; the connection starts its next request meanwhile and keeps responses in order.
A request may hold views of the connection's buffer, which are invalid when the handler returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from kio.static.protocol import Entity

from penstock.machine import Deferred
from penstock.protocol.framing import NOBODY_YET
from penstock.protocol.varint import Buffer

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

DeferredT = TypeVar("DeferredT", bound=Deferred[Any])
Packed: TypeAlias = bytes | list[Buffer]  # a whole response body, to follow the response header
Response: TypeAlias = tuple[Any, ...]  # a typed message that the row's `write` packs
Answered: TypeAlias = Entity | Packed | Response | None  # None: no response at all (acks=0)


class Held(Deferred[Answered]):
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

    def resolve(self, result: Answered | Exception) -> None:
        """A response means that the request has taken effect."""
        self.release()
        super().resolve(result)

    def on_release(self, call: Callable[[], None]) -> None:
        """Call when released: now if it is."""
        self._on_release = call
        if self._is_released:
            call()


Answer: TypeAlias = "Answered | Deferred[Answered] | asyncio.Future[Any]"


def deferred_from(future: asyncio.Future[Any]) -> Deferred[Answered]:
    """A deferred response that a future gives."""
    return _resolved_by(future, Deferred(future.cancel))


def hold(work: Callable[[Held], Coroutine[Any, Any, Answered]]) -> Held:
    """Run `work` in a task; its result is the response unless it has resolved it itself."""
    held = Held(lambda: task.cancel())
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


class Disconnect(Exception):
    """The one thing that can be answered is the end of the connection; says why."""


RequestReader: TypeAlias = Callable[[Any, int], tuple[Any, int]]
# Takes the response, the version and the throttle time in milliseconds.
ResponseWriter: TypeAlias = Callable[[Any, int, int], Packed]
ANONYMOUS: Final = "User:ANONYMOUS"


class Client:
    """Who is on the other side of a connection. The client id may differ by request."""

    __slots__ = ("askers", "host", "listener", "port", "principal")

    def __init__(
        self, host: str, port: int, *, listener: str = "PLAINTEXT", principal: str = ANONYMOUS
    ) -> None:
        self.askers = [NOBODY_YET, NOBODY_YET]  # of the last request: plain header, flexible one
        self.host = host
        self.port = port
        self.listener = listener
        self.principal = principal

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Context:
    """One request: who asks, in which version, and the broker that answers."""

    __slots__ = (
        "api_key",
        "api_version",
        "broker",
        "client",
        "client_id",
        "correlation_id",
        "has_tags",
        "throttle_ms",
        "write",
    )

    def __init__(
        self,
        broker: Broker,
        client: Client,
        client_id: str | None,
        api_key: int,
        api_version: int,
        correlation_id: int,
        has_tags: bool = False,
        write: ResponseWriter | None = None,
    ) -> None:
        self.broker = broker
        self.client = client
        self.client_id = client_id
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.has_tags = has_tags  # the header of its response ends in tagged fields
        self.write = write  # packs a typed response
        self.throttle_ms = 0  # set when a quota is charged: the connection is muted for this long

    @property
    def principal(self) -> str:
        """Who the client has proved to be."""
        return self.client.principal

    @property
    def host(self) -> str:
        """The address the client connects from."""
        return self.client.host


class Handler(NamedTuple):
    """One row of the table of what the broker serves."""

    api_key: int
    versions: tuple[int, int]  # inclusive; what is served
    handle: Callable[[Context, Any], Answer]
    read: Callable[[int], RequestReader] | None = None  # by version; None takes kio's reader
    write: ResponseWriter | None = None  # of typed responses; None: the handler packs, or kio does
    least_advertised: int | None = None  # where clients must be shown an older minimum than served

    @property
    def advertised(self) -> tuple[int, int]:
        """The range that ApiVersions shows."""
        least, most = self.versions
        return (least if self.least_advertised is None else self.least_advertised, most)


class ApiTable:
    """All handlers by API key."""

    def __init__(self, rows: Sequence[Handler]) -> None:
        self.rows = tuple(sorted(rows, key=lambda row: row.api_key))
        self.by_key: dict[int, Handler] = {row.api_key: row for row in rows}
        self.shown: dict[int, bytes] = {}  # the ApiVersions response, by its version
        assert len(self.by_key) == len(rows), "an API has two handlers"

    def find(self, api_key: int, api_version: int) -> Handler | None:
        """The handler of this key and version, if they are served."""
        row = self.by_key.get(api_key)
        if row is None or not row.versions[0] <= api_version <= row.versions[1]:
            return None
        return row
