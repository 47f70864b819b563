"""Operations on a cluster as steps without I/O: written once, run by either shell.

An operation is a generator. It yields effects, is sent what came of them, and returns its result; a
broken connection or a timeout is thrown into it. Send and Receive are separate effects so that
several brokers work at the same time, and the next bytes are requested while these are read.

A request does not know its version: the connection chooses the newest that both sides know and the
request allows.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from penstock.errors import Malformed, Refused
from penstock.link.settings import Address
from penstock.protocol.api import Api, known_versions
from penstock.protocol.message import Message
from penstock.protocol.varint import Buffer

VERSION_MAX: Final = (1 << 15) - 1

Parts: TypeAlias = Sequence[Buffer]  # to be sent one after the other
T = TypeVar("T")
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
E = TypeVar("E", bound=Exception)


@dataclass(frozen=True, slots=True)
class Request(Generic[ResponseT]):
    """A request in any version from `version_min` to `version_max`."""

    message: Message[Any, ResponseT]
    body: Callable[[int], Any]  # the typed request, for a version
    version_min: int = 0
    version_max: int = VERSION_MAX
    has_response: bool = True  # a produce request with acks=0 has none

    @property
    def api(self) -> Api:
        return self.message.api

    @property
    def versions(self) -> range:
        """Those that this client knows and the operation can use."""
        known = known_versions(self.api)
        return range(max(known.start, self.version_min), min(known.stop, self.version_max + 1))


def request_of(
    message: Message[RequestT, ResponseT],
    body: RequestT,
    *,
    version_min: int = 0,
    version_max: int = VERSION_MAX,
) -> Request[ResponseT]:
    """A request whose body is the same in all versions."""
    return Request(message, lambda _version: body, version_min, version_max)


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request to a broker; the outcome is a ticket. Never fails: Receive does."""

    address: Address
    request: Request[Any]
    timeout_ms: int | None = None  # None: by the settings


@dataclass(frozen=True, slots=True)
class Receive:
    """Wait for the response to a request that was sent."""

    ticket: Any


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait."""

    duration_ms: int


@dataclass(frozen=True, slots=True)
class Emit:
    """One item of a stream, for its reader."""

    item: Any


Effect: TypeAlias = Send | Receive | Pause | Emit
Steps: TypeAlias = Generator[Effect, Any, T]
FAILURES = (OSError, Malformed, Refused)  # what a shell throws into steps


class Drive(Generic[T]):
    """Takes an operation from effect to effect. `effect` is None when it is finished."""

    __slots__ = ("_steps", "effect", "result")

    effect: Effect | None
    result: T

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps
        self.resume(None)

    def resume(self, outcome: Any) -> None:
        """Continue with the outcome of the effect."""
        try:
            self.effect = self._steps.send(outcome)
        except StopIteration as finished:
            self.effect, self.result = None, finished.value

    def fail(self, failure: Exception) -> None:
        """Continue with the failure of the effect."""
        try:
            self.effect = self._steps.throw(failure)
        except StopIteration as finished:
            self.effect, self.result = None, finished.value

    def close(self) -> None:
        self._steps.close()


class BrokerRequest(NamedTuple):
    """A request and the broker that it is for."""

    address: Address
    request: Request[Any]


def send(
    address: Address, request: Request[ResponseT], timeout_ms: int | None = None
) -> Steps[ResponseT]:
    """The response of one broker."""
    ticket = yield Send(address, request, timeout_ms)
    response: ResponseT = yield Receive(ticket)
    return response


def send_all(requests: Sequence[BrokerRequest]) -> Steps[list[Any]]:
    """The responses of several brokers at the same time; a failure takes its response's place."""
    tickets = []
    for address, request in requests:
        tickets.append((yield Send(address, request)))
    outcomes: list[Any] = []
    for ticket in tickets:
        try:
            outcomes.append((yield Receive(ticket)))
        except FAILURES as failure:
            outcomes.append(failure)
    return outcomes


def worse(first: E | None, second: E | None) -> E | None:
    """The failure to report: one that a retry cannot cure, else the first."""
    if first is None or second is None:
        return first or second
    return first if is_temporary(second) else second


def is_temporary(failure: Exception) -> bool:
    """Whether a retry may cure it."""
    return isinstance(failure, OSError) or (isinstance(failure, Refused) and failure.code.retriable)
