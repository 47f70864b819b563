"""The registry's machine with a list for a log: every event goes through bytes and back."""

from datetime import date
from typing import Any, NamedTuple

from penstock.machine import JournalRecord, Story
from penstock.model import Millis
from penstock.registry.errors import invalid_schema
from penstock.registry.store.apply import apply
from penstock.registry.store.codec import read_event, write_event
from penstock.registry.store.commands import Command, FindSchema, Register
from penstock.registry.store.examination import (
    Examination,
    SchemaProposal,
    snapshot_to_register,
)
from penstock.registry.store.machine import decide
from penstock.registry.store.state import RegistryState
from penstock.registry.store.validate import validate
from penstock.schemas.compatibility import CompatibilityResult
from penstock.schemas.model import InvalidSchemaError


class Registration(NamedTuple):
    """A proposal with what an examiner would find; texts need not be schemas."""

    proposal: SchemaProposal
    equivalents: frozenset[int] = frozenset()

    def examined(self, state: RegistryState) -> Register:
        """The command, examined on this state."""
        try:
            snapshot = snapshot_to_register(state, self.proposal, date.min)
        except InvalidSchemaError as error:
            raise invalid_schema(str(error)) from None
        examination = Examination(
            snapshot,
            state.changes,
            snapshot.given.source,
            self.equivalents,
            CompatibilityResult(),
        )
        return Register(self.proposal, examination)


class RegistryScenario:
    """Decides one command after the other; the invariants are checked after each."""

    def __init__(self) -> None:
        self.state = RegistryState()
        self.log: list[JournalRecord] = []
        self.story = Story()
        self.now = 1000

    def submit(self, command: Command | Registration) -> Any:
        """Decide, write, read back, apply; the reply. Raises DeclinedError."""
        self.now += 1
        if isinstance(command, Registration):
            examined = command.examined(self.state)
            known = self._decide(FindSchema(*examined[:2]))
            if known is not None and command.proposal.id is None and not command.proposal.version:
                return known
            command = examined
        return self._decide(command)

    def _decide(self, command: Command) -> Any:
        outcome = decide(self.state, command, Millis(self.now))
        for event in outcome.events:
            record = write_event(event)
            self.log.append(record)
            self.apply(self.state, record)
        self.story.add(outcome.story, Millis(self.now))
        validate(self.state)
        (reply,) = outcome.replies
        return reply.body

    def apply(self, state: RegistryState, record: JournalRecord) -> None:
        event = read_event(record.key, record.value, Millis(self.now))
        assert event is not None
        apply(state, event)

    def replayed(self, records: list[JournalRecord]) -> RegistryState:
        """What a node knows that reads these records."""
        state = RegistryState()
        for record in records:
            self.apply(state, record)
        validate(state)
        return state

    def compacted(self) -> list[JournalRecord]:
        """The log as a cleaner leaves it: the last record of each key, without tombstones."""
        last = {record.key: index for index, record in enumerate(self.log)}
        return [
            record
            for index, record in enumerate(self.log)
            if last[record.key] == index and record.value is not None
        ]
