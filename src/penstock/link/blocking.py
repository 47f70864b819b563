"""The link on plain sockets, for a process that does one thing at a time: Spark's workers.

The same names as `aio`, without await. A link and a cluster belong to one thread and one process:
connections that a fork has copied are left to the parent and made anew.
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
from penstock.errors import Malformed
from penstock.link.connection import Connection
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
from penstock.model import Millis
from penstock.protocol.kio_codec import api_name
from penstock.protocol.varint import Buffer

_SECOND_MS: Final = 1000
_PARTS_MAX: Final = 512  # in one call to the kernel, which takes 1024
_CLUSTERS_MAX: Final = 8
T = TypeVar("T")


class Link:
    """A connection to one broker.

    A request that is not answered in time ends the connection: those behind it would wait as long.
    """

    def __init__(self, address: Address, settings: LinkSettings = USUAL) -> None:
        self.address = address
        self._settings = settings
        self._connection = Connection(address, settings)
        self._failure: Exception | None = None
        self._answers: dict[int, Any] = {}  # came while another was waited for
        self._unwanted: set[int] = set()  # nobody waits for these any longer
        self._socket = self._open()

    @classmethod
    def connect(cls, address: Address, settings: LinkSettings = USUAL) -> "Link":
        """Connect, and learn what the broker speaks."""
        link = cls(address, settings)
        try:
            link.greet()
        except BaseException:
            link.close()
            raise
        return link

    def _open(self) -> socket.socket:
        connect_ms = self._settings.connect_ms
        try:
            opened = socket.create_connection(self.address, connect_ms / _SECOND_MS)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return self._secured(opened)
        except TimeoutError as error:
            raise Unreachable(
                f"broker {self.address} did not take the connection in {connect_ms} ms: check the"
                " address and what stands between"
            ) from error
        except OSError as error:
            raise Unreachable(
                f"no connection to broker {self.address} ({error}): check that it runs and listens"
            ) from error

    def _secured(self, opened: socket.socket) -> socket.socket:
        if self._settings.tls is None:
            return opened
        context = tls_context(self._settings.tls)
        try:
            return context.wrap_socket(opened, server_hostname=self.address.host)
        except BaseException:
            opened.close()
            raise

    def greet(self) -> None:
        """Learn what the broker speaks; once, before anything else."""
        steps = self._connection.open(nonce=secrets.token_urlsafe())
        try:
            request = next(steps)
            while True:
                request = steps.send(self.ask(request))
        except StopIteration:
            return

    @property
    def is_open(self) -> bool:
        return self._failure is None

    @property
    def features(self) -> dict[str, int]:
        """The cluster's finalized features."""
        return self._connection.features

    def call(self, api_key: int, /, *, timeout_ms: int | None = None, **fields: Any) -> Any:
        """Ask with the fields of all versions; the response is the chosen version's entity."""
        return self.ask(plain(api_key, **fields), timeout_ms=timeout_ms)

    def ask(self, request: Request, *, timeout_ms: int | None = None) -> Any:
        """Ask and wait for the answer; None when there will be none."""
        number = self.begin(request)
        return self.finish(number, request, timeout_ms=timeout_ms)

    def begin(self, request: Request) -> int | None:
        """Send now; the number of the answer."""
        if self._failure is not None:
            raise self._failure
        while self._connection.waiting >= self._settings.waiting_max:
            self._receive(self._deadline(None), request)
        asked = self._connection.ask(request)
        try:
            self._send(asked.parts)
        except OSError as error:
            raise self._end(Unreachable(self._connection.lost(str(error)))) from error
        return asked.number

    def finish(self, number: int | None, request: Request, *, timeout_ms: int | None = None) -> Any:
        """Wait for an answer that was begun."""
        if number is None:
            return None
        deadline = self._deadline(timeout_ms)
        while number not in self._answers:
            self._receive(deadline, request)
        return self._answers.pop(number)

    def abandon(self, number: int | None) -> None:
        """Drop an answer that was begun, now or when it comes."""
        if number is not None and self._answers.pop(number, self) is self:
            self._unwanted.add(number)

    def is_stale(self) -> bool:
        """Whether the broker has ended a connection that nothing was asked on."""
        if self._failure is not None:
            return True
        if self._connection.waiting:
            return False
        # A broker never speaks first: what can be read now is the end.
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """End the connection."""
        self._end(Unreachable(f"the connection to broker {self.address} was closed here"))

    def _deadline(self, timeout_ms: int | None) -> Millis:
        span_ms = self._settings.answer_ms if timeout_ms is None else timeout_ms
        return Millis(monotonic_ms() + span_ms)

    def _send(self, parts: Sequence[Buffer]) -> None:
        self._socket.settimeout(self._settings.answer_ms / _SECOND_MS)
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

    def _receive(self, deadline: Millis, request: Request) -> None:
        """Take what has come, or wait for it."""
        if self._failure is not None:
            raise self._failure
        left_ms = deadline - monotonic_ms()
        try:
            if left_ms <= 0:
                raise TimeoutError
            self._socket.settimeout(left_ms / _SECOND_MS)
            size = self._socket.recv_into(self._connection.room())
        except TimeoutError as error:
            late = f"broker {self.address} did not answer {api_name(request.api_key)} in time"
            raise self._end(TimeoutError(late)) from error
        except OSError as error:
            raise self._end(Unreachable(self._connection.lost(str(error)))) from error
        if not size:
            raise self._end(Unreachable(self._connection.lost("closed by the broker")))
        try:
            for number, response in self._connection.received(size):
                if number in self._unwanted:
                    self._unwanted.remove(number)
                else:
                    self._answers[number] = response
        except Malformed as error:
            raise self._end(error) from error

    def _end(self, failure: Exception) -> Exception:
        if self._failure is None:
            self._failure = failure
            self._socket.close()
        return failure


class _Ticket(NamedTuple):
    """What was begun, or why it could not be."""

    link: Link | None
    number: int | None
    begun: Begin
    failure: Exception | None


class Cluster:
    """Connections to the brokers of a cluster, made when first needed and kept.

    `cluster.run(end_offsets(partitions))`; what there is to run has a module for each family.
    """

    def __init__(self, bootstrap: str, settings: LinkSettings = USUAL) -> None:
        self._links: dict[Address, Link] = {}
        # For clusters that `kept_cluster` has dropped. Not `__del__`: in a cycle of garbage the
        # sockets may be finalized first, and warn that they are open.
        weakref.finalize(self, _close_links, self._links)
        self.settings = settings
        self.routes = Routes(read_bootstrap(bootstrap), settings, monotonic_ms, random.random)
        self._process = os.getpid()

    def run(self, operation: Operation[T]) -> T:
        """Perform an operation to its end."""
        drive = Drive(operation(self.routes))
        tickets: list[_Ticket] = []
        try:
            while drive.effect is not None:
                assert not isinstance(drive.effect, Give), "streams are run by `stream`"
                self._advance(drive, tickets)
            return drive.result
        finally:
            drive.close()
            _abandon(tickets)

    def stream(self, operation: StreamOperation[T]) -> Iterator[T]:
        """Perform an operation that gives items as it goes."""
        drive = Drive(operation(self.routes))
        tickets: list[_Ticket] = []
        try:
            while drive.effect is not None:
                if isinstance(drive.effect, Give):
                    yield drive.effect.item
                    drive.report(None)
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
            drive.report(outcome)

    def _perform(self, effect: Effect | None, tickets: list[_Ticket]) -> Any:
        match effect:
            case Begin():
                ticket = self._begin(effect)
                tickets.append(ticket)
                return ticket
            case Finish(ticket):
                tickets.remove(ticket)
                if ticket.failure is not None:
                    raise ticket.failure
                begun = ticket.begun
                return ticket.link.finish(ticket.number, begun.request, timeout_ms=begun.timeout_ms)
            case Pause(span_ms):
                return time.sleep(span_ms / _SECOND_MS)
            case _:
                raise AssertionError(f"{effect} is not to be performed")

    def _begin(self, begin: Begin) -> _Ticket:
        try:
            link = self._link(begin.where)
            return _Ticket(link, link.begin(begin.request), begin, None)
        except FAILURES as failure:
            return _Ticket(None, None, begin, self.routes.explained(begin.where, failure))

    def _link(self, address: Address) -> Link:
        if self._process != os.getpid():
            self.close()  # the child's copies only: the parent's connections live on
            self._process = os.getpid()
        link = self._links.get(address)
        if link is not None and link.is_stale():
            link.close()
            link = None
        if link is None:
            link = self._links[address] = Link.connect(address, self.settings)
        return link

    def close(self) -> None:
        """End all connections."""
        _close_links(self._links)

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def kept_cluster(bootstrap: str, settings: LinkSettings = USUAL) -> Cluster:
    """A cluster that this thread keeps: its connections outlive the task that opened them.

    Each thread has its own, because a connection carries one conversation at a time. They are
    closed when the thread ends, and when the thread has used eight other clusters since.
    """
    clusters = _of_thread.clusters
    name = (bootstrap, settings)
    kept = clusters.pop(name, None) or Cluster(bootstrap, settings)
    clusters[name] = kept  # the last one used is the last one dropped
    while len(clusters) > _CLUSTERS_MAX:
        del clusters[next(iter(clusters))]
    return kept


class _OfThread(threading.local):
    """The clusters of one thread, the least recently used first."""

    def __init__(self) -> None:
        self.clusters: dict[tuple[str, LinkSettings], Cluster] = {}


_of_thread = _OfThread()


def _close_links(links: dict[Address, Link]) -> None:
    while links:
        links.popitem()[1].close()


def _abandon(tickets: list[_Ticket]) -> None:
    """Answers nobody waits for any longer are dropped when they come."""
    for ticket in tickets:
        if ticket.link is not None:
            ticket.link.abandon(ticket.number)
