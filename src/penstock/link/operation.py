"""A request before its version is known: how to write it and how to read its answer in any.

The version is the connection's to choose: the newest that both sides know and the request allows.

Operations as steps: written once, run by either shell.

An operation is a generator. It yields what is to be done, is sent what came of it, and returns its
result; a broken connection or a timeout is thrown into it. Begin and Finish are apart so that
several brokers can be asked at once, and the next bytes asked for while these are being read.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from penstock.errors import Malformed, Refused
from penstock.link.settings import Address
from penstock.protocol.kio_codec import (
    BodyReader,
    encode,
    fill,
    known_versions,
    request_type,
    response_reader,
)
from penstock.protocol.varint import Buffer

LAST_VERSION: Final = (1 << 15) - 1

Parts: TypeAlias = Sequence[Buffer]  # to be sent one after the other


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked. `least` and `last` bound the versions that mean what the asker wants."""

    api_key: int
    write: Callable[[int], Parts]  # the body in a version
    reader: Callable[[int], BodyReader]
    least: int = 0
    last: int = LAST_VERSION
    is_answered: bool = True  # a produce with acks=0 is not

    @property
    def versions(self) -> range:
        """Those we can speak and the asker can use."""
        known = known_versions(self.api_key)
        return range(max(known.start, self.least), min(known.stop, self.last + 1))


def plain(api_key: int, /, *, least: int = 0, last: int = LAST_VERSION, **fields: Any) -> Request:
    """A request from the fields of all its versions, as `messages.fill` takes them."""

    def write(version: int) -> Parts:
        return (encode(fill(request_type(api_key, version), **fields)),)

    def reader(version: int) -> BodyReader:
        return response_reader(api_key, version)

    return Request(int(api_key), write, reader, least, last)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Begin:
    """Send a request to a broker; what comes of it is a ticket. Never fails: Finish does."""

    where: Address
    request: Request
    timeout_ms: int | None = None  # None: as the settings say


@dataclass(frozen=True, slots=True)
class Finish:
    """Wait for the answer to what was begun."""

    ticket: Any


@dataclass(frozen=True, slots=True)
class Pause:
    """Let time pass."""

    span_ms: int


@dataclass(frozen=True, slots=True)
class Give:
    """One item of a stream, for whoever reads it."""

    item: Any


Effect: TypeAlias = Begin | Finish | Pause | Give
Steps: TypeAlias = Generator[Effect, Any, T]
Failure: TypeAlias = OSError | Malformed | Refused
FAILURES = (OSError, Malformed, Refused)  # what a shell throws into steps


class Drive(Generic[T]):
    """Takes an operation from effect to effect. `effect` is None when it is over."""

    __slots__ = ("_steps", "effect", "result")

    effect: Effect | None
    result: T

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps
        self.report(None)

    def report(self, outcome: Any) -> None:
        """Go on with what came of the effect."""
        try:
            self.effect = self._steps.send(outcome)
        except StopIteration as done:
            self.effect, self.result = None, done.value

    def fail(self, failure: Exception) -> None:
        """Go on with the effect's failure."""
        try:
            self.effect = self._steps.throw(failure)
        except StopIteration as done:
            self.effect, self.result = None, done.value

    def close(self) -> None:
        self._steps.close()


class Ask(NamedTuple):
    """A request and the broker it is for."""

    where: Address
    request: Request


def ask(where: Address, request: Request, timeout_ms: int | None = None) -> Steps[Any]:
    """The answer of one broker."""
    ticket = yield Begin(where, request, timeout_ms)
    return (yield Finish(ticket))


def ask_all(asks: Sequence[Ask]) -> Steps[list[Any]]:
    """The answers of several brokers asked at once; a failure stands where its answer would."""
    tickets = []
    for where, request in asks:
        tickets.append((yield Begin(where, request)))
    outcomes: list[Any] = []
    for ticket in tickets:
        try:
            outcomes.append((yield Finish(ticket)))
        except FAILURES as failure:
            outcomes.append(failure)
    return outcomes
