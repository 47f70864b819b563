"""The link on blocking sockets, for processes that do one thing at a time: Spark's workers.

The same methods as `aio`, without await. A link and a cluster belong to one thread and one process:
connections that a fork copied are left to the parent and opened again.
"""

import os
import random
import secrets
import select
import socket
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from penstock.clock import monotonic_ms
from penstock.closing import Closing
from penstock.errors import Malformed
from penstock.link.connection import (
    LinkConnection,
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
from penstock.model import Millis
from penstock.protocol.message import Message
from penstock.protocol.varint import Buffer

_SECOND_MS: Final = 1000
_PARTS_MAX: Final = 512  # in one system call, which accepts 1024
_CLUSTERS_MAX: Final = 8
T = TypeVar("T")
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class BlockingLink:
    """A connection to one broker. Requests are pipelined; responses come in order.

    A response that is late ends the connection: those behind it would be as late.
    """

    def __init__(self, address: Address, settings: LinkSettings = DEFAULTS) -> None:
        self.address = address
        self._settings = settings
        self._connection = LinkConnection(address, settings)
        self._failure: Exception | None = None
        self._responses: dict[int, Any] = {}  # came while another was waited for
        self._abandoned: set[int] = set()  # dropped when they come
        self._socket = self._open()

    @classmethod
    def connect(cls, address: Address, settings: LinkSettings = DEFAULTS) -> "BlockingLink":
        """Connect, negotiate versions and log in."""
        link = cls(address, settings)
        try:
            link.handshake()
        except BaseException:
            link.close()
            raise
        return link

    def _open(self) -> socket.socket:
        try:
            timeout_s = self._settings.connect_timeout_ms / _SECOND_MS
            opened = socket.create_connection(self.address, timeout_s)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return self._secured(opened)
        except TimeoutError as error:
            raise connect_timeout(self.address, self._settings) from error
        except OSError as error:
            raise cannot_connect(self.address, error) from error

    def _secured(self, opened: socket.socket) -> socket.socket:
        if self._settings.tls is None:
            return opened
        context = tls_context(self._settings.tls)
        try:
            return context.wrap_socket(opened, server_hostname=self.address.host)
        except BaseException:
            opened.close()
            raise

    def handshake(self) -> None:
        """Negotiate versions and log in; once, before any other request."""
        steps = self._connection.open(nonce=secrets.token_urlsafe())
        try:
            request = next(steps)
            while True:
                request = steps.send(self.send(request))
        except StopIteration:
            return

    @property
    def is_open(self) -> bool:
        return self._failure is None

    @property
    def features(self) -> dict[str, int]:
        """The cluster's finalized features."""
        return self._connection.features

    def call(
        self,
        message: Message[RequestT, ResponseT],
        body: RequestT,
        *,
        timeout_ms: int | None = None,
    ) -> ResponseT:
        """The response to a request in the newest version that both sides know."""
        request = request_of(message, body)
        response: ResponseT = self.send(request, timeout_ms=timeout_ms)
        return response

    def send(self, request: Request[Any], *, timeout_ms: int | None = None) -> Any:
        """Send a request and wait for its response; None if it has none."""
        number = self.start(request)
        return self.response(number, request, timeout_ms=timeout_ms)

    def start(self, request: Request[Any]) -> int | None:
        """Send now; the number of the response."""
        if self._failure is not None:
            raise self._failure
        limit_ms = self._settings.request_timeout_ms
        while self._connection.in_flight >= self._settings.in_flight_max:
            self._receive(_deadline(limit_ms), limit_ms, request)
        outgoing = self._connection.write(request)
        try:
            self._write(outgoing.parts)
        except OSError as error:
            raise self._end(UnreachableError(self._connection.lost(str(error)))) from error
        return outgoing.number

    def response(
        self, number: int | None, request: Request[Any], *, timeout_ms: int | None = None
    ) -> Any:
        """Wait for the response to a request that was started."""
        if number is None:
            return None
        limit_ms = self._settings.request_timeout_ms if timeout_ms is None else timeout_ms
        deadline = _deadline(limit_ms)
        while number not in self._responses:
            self._receive(deadline, limit_ms, request)
        return self._responses.pop(number)

    def abandon(self, number: int | None) -> None:
        """Drop the response to a request that was started, now or when it comes."""
        if number is not None and self._responses.pop(number, self) is self:
            self._abandoned.add(number)

    def is_stale(self) -> bool:
        """Whether the broker closed an idle connection."""
        if self._failure is not None:
            return True
        if self._connection.in_flight:
            return False
        # A broker never sends first: readable means closed.
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Close the connection."""
        self._end(UnreachableError(f"the connection to broker {self.address} was closed here"))

    def _write(self, parts: Sequence[Buffer]) -> None:
        self._socket.settimeout(self._settings.request_timeout_ms / _SECOND_MS)
        if self._settings.tls is not None:
            self._socket.sendall(b"".join(parts))
            return
        unsent = [memoryview(part) for part in parts if len(part)]
        while unsent:
            sent = self._socket.sendmsg(unsent[:_PARTS_MAX])
            while unsent and sent >= len(unsent[0]):
                sent -= len(unsent.pop(0))
            if sent:
                unsent[0] = unsent[0][sent:]

    def _receive(self, deadline: Millis, limit_ms: int, request: Request[Any]) -> None:
        """Read what has arrived, or wait for it."""
        if self._failure is not None:
            raise self._failure
        left_ms = deadline - monotonic_ms()
        try:
            if left_ms <= 0:
                raise TimeoutError
            self._socket.settimeout(left_ms / _SECOND_MS)
            size = self._socket.recv_into(self._connection.buffer())
        except TimeoutError as error:
            raise self._end(response_timeout(self.address, request, limit_ms)) from error
        except OSError as error:
            raise self._end(UnreachableError(self._connection.lost(str(error)))) from error
        if not size:
            raise self._end(UnreachableError(self._connection.lost("closed by the broker")))
        try:
            for number, body in self._connection.received(size):
                if number in self._abandoned:
                    self._abandoned.remove(number)
                else:
                    self._responses[number] = body
        except Malformed as error:
            raise self._end(error) from error

    def _end(self, failure: Exception) -> Exception:
        if self._failure is None:
            self._failure = failure
            self._socket.close()
        return failure


class _Ticket(NamedTuple):
    """A request in flight, or why it could not be sent."""

    link: BlockingLink | None
    number: int | None
    sent: Send
    failure: Exception | None


class BlockingCluster(Closing):
    """Connections to the brokers of a cluster, opened when first needed and kept.

    `cluster.run(end_offsets(partitions))`; the operations have a module for each family.
    """

    def __init__(self, bootstrap: str, settings: LinkSettings = DEFAULTS) -> None:
        self._links: dict[Address, BlockingLink] = {}
        # For clusters that `thread_cluster` has dropped. Not `__del__`: in a cycle of garbage the
        # sockets may be finalized first, and warn that they are open.
        weakref.finalize(self, _close_links, self._links)
        self.settings = settings
        self.routes: Final = Routes(
            read_bootstrap(bootstrap), settings, monotonic_ms, random.random
        )
        self._process = os.getpid()

    def run(self, operation: Operation[T]) -> T:
        """Perform an operation to its end."""
        drive = Drive(operation(self.routes))
        tickets: list[_Ticket] = []
        try:
            while drive.effect is not None:
                assert not isinstance(drive.effect, Emit), "streams are run by `stream`"
                self._advance(drive, tickets)
            return drive.result
        finally:
            drive.close()
            _abandon(tickets)

    def stream(self, operation: StreamOperation[T]) -> Iterator[T]:
        """Perform an operation that emits items."""
        drive = Drive(operation(self.routes))
        tickets: list[_Ticket] = []
        try:
            while drive.effect is not None:
                if isinstance(drive.effect, Emit):
                    yield drive.effect.item
                    drive.resume(None)
                else:
                    self._advance(drive, tickets)
        finally:
            drive.close()
            _abandon(tickets)

    def _advance(self, drive: Drive[Any], tickets: list[_Ticket]) -> None:
        try:
            outcome = self._perform(drive.effect, tickets)
        except FAILURES as failure:
            drive.fail(failure)
        else:
            drive.resume(outcome)

    def _perform(self, effect: Effect | None, tickets: list[_Ticket]) -> Any:
        match effect:
            case Send():
                ticket = self._send(effect)
                tickets.append(ticket)
                return ticket
            case Receive(ticket):
                tickets.remove(ticket)
                if ticket.failure is not None:
                    raise ticket.failure
                sent = ticket.sent
                return ticket.link.response(ticket.number, sent.request, timeout_ms=sent.timeout_ms)
            case Pause(duration_ms):
                return time.sleep(duration_ms / _SECOND_MS)
            case _:
                raise AssertionError(f"{effect} cannot be performed")

    def _send(self, send: Send) -> _Ticket:
        try:
            link = self._link(send.address)
            return _Ticket(link, link.start(send.request), send, None)
        except FAILURES as failure:
            return _Ticket(None, None, send, self.routes.explained(send.address, failure))

    def _link(self, address: Address) -> BlockingLink:
        if self._process != os.getpid():
            self.close()  # the child's copies only: the parent's connections stay open
            self._process = os.getpid()
        link = self._links.get(address)
        if link is not None and link.is_stale():
            link.close()
            link = None
        if link is None:
            link = self._links[address] = BlockingLink.connect(address, self.settings)
        return link

    def close(self) -> None:
        """Close all connections."""
        _close_links(self._links)


def thread_cluster(bootstrap: str, settings: LinkSettings = DEFAULTS) -> BlockingCluster:
    """A cluster that this thread keeps: its connections outlive the task that opened them.

    Each thread has its own, because a link serves one thread. They are closed when the thread ends,
    and when the thread has used eight other clusters since.
    """
    clusters = _thread.clusters
    key = (bootstrap, settings)
    cluster = clusters.pop(key, None) or BlockingCluster(bootstrap, settings)
    clusters[key] = cluster  # the most recently used is dropped last
    while len(clusters) > _CLUSTERS_MAX:
        del clusters[next(iter(clusters))]
    return cluster


class _ThreadClusters(threading.local):
    """The clusters of one thread, the least recently used first."""

    def __init__(self) -> None:
        self.clusters: dict[tuple[str, LinkSettings], BlockingCluster] = {}


_thread = _ThreadClusters()


def _deadline(limit_ms: int) -> Millis:
    return Millis(monotonic_ms() + limit_ms)


def _close_links(links: dict[Address, BlockingLink]) -> None:
    while links:
        links.popitem()[1].close()


def _abandon(tickets: list[_Ticket]) -> None:
    """Drop the responses that no operation waits for, when they come."""
    for ticket in tickets:
        if ticket.link is not None:
            ticket.link.abandon(ticket.number)
