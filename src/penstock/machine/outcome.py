"""What a machine is, and what it answers.

`decide` holds every rule and changes nothing; `apply` changes the state and cannot fail. `apply` is
an upsert by key and means the same the second time, because replay may see only the last value of
each key.
"""

from collections.abc import Sequence
from typing import (
    Any,
    Generic,
    NamedTuple,
    NewType,
    Protocol,
    TypeAlias,
    TypeVar,
    runtime_checkable,
)

from penstock.machine.journal import JournalRecord, TransactionStamp
from penstock.model import Millis, Moment

CallerId = NewType("CallerId", int)  # minted by the shell for each request it waits to answer


class Reply(NamedTuple):
    """An answer to this caller or one parked before; leaves when all it saw is committed."""

    to: CallerId
    body: object  # an answer the shell understands, or a Refused


EventT = TypeVar("EventT")
EventT_contra = TypeVar("EventT_contra", contravariant=True)


class Outcome(NamedTuple, Generic[EventT]):
    """What must be done now that a command was decided."""

    events: tuple[
        EventT, ...
    ] = ()  # hard: appended to the machine's log, all or none, then applied
    notes: tuple[EventT, ...] = ()  # soft: applied, never logged; gone after a failover (sessions)
    replies: tuple[Reply, ...] = ()  # released once committed
    sends: tuple[object, ...] = ()  # to peers, once committed; each may be lost
    stamp: TransactionStamp | None = None  # the events belong to this producer's open transaction


StateT = TypeVar("StateT")
CommandT_contra = TypeVar("CommandT_contra", contravariant=True)


class Machine(Protocol[StateT, CommandT_contra, EventT]):
    """A pure service: three verbs that are plain functions, and the codec of its log."""

    def fresh(self) -> StateT:
        """The state before the first record."""

    def decide(self, state: StateT, command: CommandT_contra, now: Moment) -> Outcome[EventT]:
        """All rules live here. May raise Refused; changes nothing."""

    def apply(self, state: StateT, event: EventT) -> None:
        """Change the state. Cannot fail, and means the same the second time."""

    def wake_at(self, state: StateT) -> Millis | None:
        """When `tick` must be decided, if ever: by the steady clock."""

    def tick(self, state: StateT, now: Moment) -> Outcome[EventT]:
        """Time passed: sessions end, delayed work starts."""

    def write_event(self, event: EventT) -> JournalRecord:
        """The event as its log stores it."""

    def read_events(
        self, record: JournalRecord, stamp: TransactionStamp | None
    ) -> Sequence[EventT]:
        """The events a stored record stands for; none for what a newer version may add."""


Stored: TypeAlias = tuple[bytes | None, bytes | None]  # key and value as a batch holds them


@runtime_checkable
class ReplaysBatches(Protocol):
    """A machine that reads many records faster than one by one, to the same effect."""

    def replay_batch(
        self,
        state: Any,
        records: Sequence[Stored],
        stamp: TransactionStamp | None,
    ) -> None:
        """Apply what the records of one batch stand for, in order."""
