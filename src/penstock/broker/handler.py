"""What a handler is: a row of the API table, what it is told, and what it may answer.

A handler takes effect in arrival order, in one breath: it never awaits. What it cannot answer yet
is a future; the connection starts its next request meanwhile and keeps replies in order.
The request body may hold views of the connection's buffer, which die when the handler returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from kio.static.protocol import Entity

from penstock.protocol.headers import NOBODY_YET
from penstock.protocol.primitives import Buffer

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

Packed: TypeAlias = bytes | list[Buffer]  # a whole response body, to follow the response header


class Held(NamedTuple):
    """A pending answer whose effect is still to come: the connection starts nothing else before.

    Used where a request must wait *before* it acts (records opened in a thread, a transaction
    verified by its coordinator), so that a later request cannot overtake it.
    """

    answer: asyncio.Future[Any]


Answered: TypeAlias = Entity | Packed | None  # None: no response at all (acks=0)
Answer: TypeAlias = "Answered | asyncio.Future[Any] | Held"


class Disconnect(Exception):
    """The one thing that can be answered is the end of the connection; says why."""


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
    ) -> None:
        self.broker = broker
        self.client = client
        self.client_id = client_id
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.has_tags = has_tags  # the header of its response ends in tagged fields
        self.throttle_ms = 0  # set by who charges a quota: the connection is muted for so long

    @property
    def principal(self) -> str:
        """Who the client has proved to be."""
        return self.client.principal

    @property
    def host(self) -> str:
        """The address the client connects from."""
        return self.client.host


RequestReader: TypeAlias = Callable[[Any, int], tuple[Any, int]]


class Handler(NamedTuple):
    """One row of the table of what the broker serves."""

    api_key: int
    versions: tuple[int, int]  # inclusive; what is served
    handle: Callable[[Context, Any], Answer]
    read: Callable[[int], RequestReader] | None = None  # by version; None takes kio's reader
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
