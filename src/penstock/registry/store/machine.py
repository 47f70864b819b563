"""The registry as a machine over `_schemas`."""

from collections.abc import Sequence
from typing import Final, assert_never

from penstock.machine import JournalRecord, Outcome, Reply, TransactionMark
from penstock.model import Millis, Moment
from penstock.registry.errors import DeclinedError, schema_too_large
from penstock.registry.store.apply import apply
from penstock.registry.store.codec import read_event, write_event
from penstock.registry.store.commands import (
    Command,
    DeleteSubject,
    DeleteVersion,
    FindSchema,
    MarkLog,
    Register,
    RemoveConfig,
    RemoveMode,
    SetConfig,
    SetMode,
)
from penstock.registry.store.decide_delete import (
    decide_delete_subject,
    decide_delete_version,
    unrecorded_ids,
)
from penstock.registry.store.decide_register import decide_find, decide_register
from penstock.registry.store.decide_settings import (
    decide_config,
    decide_mode,
    decide_remove_config,
    decide_remove_mode,
)
from penstock.registry.store.events import Event, LogMarked
from penstock.registry.store.state import RegistryState
from penstock.registry.store.validate import validate

RECORD_BYTES_MAX: Final = 1_000_000 - 1024  # what a producer sends with default settings


class RegistryMachine:
    """All rules of the registry. What it declines is a reply: `DeclinedError`."""

    def fresh(self) -> RegistryState:
        """No subject is registered."""
        return RegistryState()

    def decide(self, state: RegistryState, command: Command, now: Moment) -> Outcome[Event]:
        """All rules. Changes nothing."""
        try:
            outcome = decide(state, command, now.wall)
            _check_sizes(outcome.events)
        except DeclinedError as refusal:
            return Outcome(replies=(Reply(command.caller, refusal),))
        return outcome

    def apply(self, state: RegistryState, event: Event) -> None:
        """Change the state. Cannot fail."""
        apply(state, event)

    def wake_at(self, state: RegistryState) -> Millis | None:
        """Nothing here depends on time."""
        return None

    def tick(self, state: RegistryState, now: Moment) -> Outcome[Event]:
        """Nothing to do."""
        return Outcome()

    def validate(self, state: RegistryState) -> None:
        """Assert the invariants."""
        validate(state)

    def write_event(self, event: Event) -> JournalRecord:
        """The event as `_schemas` stores it."""
        return write_event(event)

    def read_events(self, record: JournalRecord, mark: TransactionMark | None) -> Sequence[Event]:
        """The event that a record stands for, without the time of the record."""
        event = read_event(record.key, record.value, Millis(0))
        return () if event is None else (event,)


def decide(state: RegistryState, command: Command, now: Millis) -> Outcome[Event]:
    """Events and reply. Raises DeclinedError; changes nothing."""
    match command:
        case FindSchema():
            return decide_find(state, command)
        case Register():
            return decide_register(state, command, now)
        case DeleteSubject():
            return decide_delete_subject(state, command)
        case DeleteVersion():
            return decide_delete_version(state, command)
        case SetConfig():
            return decide_config(state, command)
        case RemoveConfig():
            return decide_remove_config(state, command)
        case SetMode():
            return decide_mode(state, command)
        case RemoveMode():
            return decide_remove_mode(state, command)
        case MarkLog():
            marked = LogMarked(unrecorded_ids(state))
            return Outcome(events=(marked,), replies=(Reply(command.caller, None),))
        case _:
            assert_never(command)


def _check_sizes(events: Sequence[Event]) -> None:
    for event in events:
        record = write_event(event)
        size_bytes = len(record.key) + len(record.value or b"")
        if size_bytes > RECORD_BYTES_MAX:
            raise schema_too_large(f"its record would have {size_bytes} bytes")
