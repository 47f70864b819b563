"""What a machine is, and what it decides.

`decide` holds every rule and changes nothing; `apply` changes the state and cannot fail. `apply` is
an upsert by key and idempotent, because replay may see only the last value of each key.
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

from penstock.machine.journal import JournalRecord, TransactionMark
from penstock.machine.story import Step
from penstock.model import Millis, Moment

CallerId = NewType("CallerId", int)  # given by the runner to each request that gets a reply
NO_CALLER = CallerId(0)  # of a command that nothing waits for; callers are numbered from 1


class Reply(NamedTuple):
    """To this caller or to one that waits since an earlier command."""

    to: CallerId
    body: object  # the command's own reply type, or a Refused


EventT = TypeVar("EventT")


class Outcome(NamedTuple, Generic[EventT]):
    """What must be done now that a command was decided."""

    events: tuple[EventT, ...] = ()  # durable: appended to the log, all or none, then applied
    notes: tuple[EventT, ...] = ()  # soft: applied, never logged; lost on failover (sessions)
    replies: tuple[Reply, ...] = ()  # released once everything they depend on is committed
    sends: tuple[object, ...] = ()  # to the shell, once committed; each may be lost
    mark: TransactionMark | None = None  # the events belong to this producer's open transaction
    story: tuple[Step, ...] = ()  # what an operator may want to know later


StateT = TypeVar("StateT")
CommandT_contra = TypeVar("CommandT_contra", contravariant=True)


class Machine(Protocol[StateT, CommandT_contra, EventT]):
    """A pure service: functions of a state, and the codec of its log."""

    def fresh(self) -> StateT:
        """The state before the first record."""

    def decide(self, state: StateT, command: CommandT_contra, now: Moment) -> Outcome[EventT]:
        """All rules. May raise Refused; changes nothing."""

    def apply(self, state: StateT, event: EventT) -> None:
        """Change the state. Cannot fail; idempotent."""

    def wake_at(self, state: StateT) -> Millis | None:
        """When `tick` must be decided, if ever: by the steady clock."""

    def tick(self, state: StateT, now: Moment) -> Outcome[EventT]:
        """Time passed: sessions end, delayed work starts."""

    def validate(self, state: StateT) -> None:
        """Assert the invariants. For tests and simulations: it may look at everything."""

    def write_event(self, event: EventT) -> JournalRecord:
        """The event as its log stores it."""

    def read_events(self, record: JournalRecord, mark: TransactionMark | None) -> Sequence[EventT]:
        """The events a stored record stands for; none for what a newer version may add."""


KeyValue: TypeAlias = tuple[bytes | None, bytes | None]  # as a batch holds them


@runtime_checkable
class ReplaysBatches(Protocol):
    """A machine that reads many records faster than one by one, to the same effect."""

    def replay_batch(
        self, state: Any, records: Sequence[KeyValue], mark: TransactionMark | None
    ) -> None:
        """Apply what the records of one batch stand for, in order."""
