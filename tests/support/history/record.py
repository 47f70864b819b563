"""The operations of a history. Each is plain data, and can be a line of JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, get_args

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


UNKNOWN_OFFSET = -1


class Outcome(StrEnum):
    """What the client knows of an operation."""

    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"  # it certainly did not, and will not, take effect
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Produced:
    """One record that a client sent. Its value is unique in the history."""

    producer: str
    topic: str
    partition: int
    value: str
    outcome: Outcome = Outcome.UNKNOWN
    offset: int = UNKNOWN_OFFSET  # where it is, if acknowledged and known
    transaction: str | None = None  # the transaction that it is part of


@dataclass(slots=True)
class Transaction:
    """A transaction that a client ended, or tried to end."""

    name: str
    is_commit: bool
    outcome: Outcome = Outcome.UNKNOWN


@dataclass(slots=True)
class Read:
    """A record that a reader saw. Readers read committed records, from the log's start."""

    reader: str
    topic: str
    partition: int
    offset: int
    value: str


@dataclass(slots=True)
class Committed:
    """A group's member committed an offset."""

    group: str
    generation: int
    member: str
    topic: str
    partition: int
    offset: int
    outcome: Outcome = Outcome.UNKNOWN


@dataclass(slots=True)
class Fetched:
    """A group's member fetched the committed offset of an assigned partition; -1: none."""

    group: str
    generation: int
    member: str
    topic: str
    partition: int
    offset: int


@dataclass(slots=True)
class Owned:
    """A member was assigned a partition in a generation of its group."""

    group: str
    generation: int
    member: str
    topic: str
    partition: int


@dataclass(slots=True)
class Changed:
    """A client gave something in the metadata a new value. One client changes it, step by step."""

    key: str
    value: str
    outcome: Outcome = Outcome.UNKNOWN


@dataclass(slots=True)
class Seen:
    """The value of something in the metadata after all changes; empty if it is not there."""

    key: str
    value: str


Operation = Produced | Transaction | Read | Committed | Fetched | Owned | Changed | Seen
_TYPES = {each.__name__: each for each in get_args(Operation)}


@dataclass(slots=True)
class History:
    """Operations in the order in which their outcome became known."""

    operations: list[Operation] = field(default_factory=list)

    def add(self, operation: Operation) -> None:
        """Note an operation whose outcome is known, or will stay unknown."""
        self.operations.append(operation)

    def of(self, kind: type[Any]) -> Iterable[Any]:
        """The operations of one kind, in order."""
        return (operation for operation in self.operations if isinstance(operation, kind))

    def save(self, path: Path) -> None:
        """Write one line of JSON per operation."""
        with path.open("w") as file:
            for operation in self.operations:
                row = {"kind": type(operation).__name__, **asdict(operation)}
                file.write(json.dumps(row) + "\n")

    @classmethod
    def load(cls, path: Path) -> History:
        """Read what `save` wrote."""
        history = cls()
        with path.open() as file:
            for line in file:
                history.add(read_operation(json.loads(line)))
        return history


def read_operation(row: dict[str, Any]) -> Operation:
    """One line that `History.save`, or a client in another language, wrote."""
    fields = {name: value for name, value in row.items() if name != "kind"}
    if "outcome" in fields:
        fields["outcome"] = Outcome(fields["outcome"])
    operation: Operation = _TYPES[row["kind"]](**fields)
    return operation
