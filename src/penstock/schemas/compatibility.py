"""Whether a proposed schema may follow those that are there, by the level a subject asks for.

Which pairs are compared, in which direction and in which order is decided here; how two schemas
compare is their language's business. The texts are Confluent's, because people match on them.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from penstock.schemas.model import (
    UNCHECKABLE,
    Difference,
    ParsedSchema,
    Policy,
    SchemaType,
)

OLD_SCHEMA_CHARACTERS_MAX: Final = 10 * 1024
MESSAGES_CHARACTERS_MAX: Final = 256 * 1024  # of one answer, the old schema aside
DIFFERENT_TYPE: Final = "DIFFERENT_SCHEMA_TYPE"
# Kinds that are ours: the sentence stands alone in the API's messages.
_WORDLESS: Final = frozenset((DIFFERENT_TYPE, UNCHECKABLE))

# (reader, writer, policy) -> why the one cannot read what the other wrote. `caches` has one that
# remembers.
Incompatibilities = Callable[[ParsedSchema, ParsedSchema, Policy], tuple[Difference, ...]]


def compare_directly(
    reader: ParsedSchema, writer: ParsedSchema, policy: Policy
) -> tuple[Difference, ...]:
    """Ask the reader's language, each time anew."""
    return reader.incompatibilities(writer, policy)


class Level(StrEnum):
    """What a subject promises its users."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"  # the new schema reads what the latest wrote: consumers upgrade first
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"  # the latest schema reads what the new one writes: producers upgrade first
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"  # both: any order
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        """Every version counts, not only the latest."""
        return self.endswith("_TRANSITIVE")

    @property
    def is_forward(self) -> bool:
        """Old readers must read new events."""
        return self.startswith(("FORWARD", "FULL"))

    @property
    def is_backward(self) -> bool:
        """New readers must read old events."""
        return self.startswith(("BACKWARD", "FULL"))


class EarlierVersion(NamedTuple):
    """A version that is there already."""

    version: int
    schema: ParsedSchema


class Break(NamedTuple):
    """One difference, and which side fails to read."""

    difference: Difference
    new_is_reader: bool

    @property
    def sentence(self) -> str:
        """What is wrong, naming the two sides old and new."""
        if self.new_is_reader:
            return self.difference.describe(reader="new", writer="old")
        return self.difference.describe(reader="old", writer="new")


class CompatibilityResult(NamedTuple):
    """Empty breaks: compatible. Otherwise the version that broke, and all reasons."""

    breaks: tuple[Break, ...] = ()
    against: EarlierVersion | None = None

    @property
    def is_compatible(self) -> bool:
        """Whether the proposed schema may be registered."""
        return not self.breaks


def check(
    level: Level,
    proposed: ParsedSchema,
    earlier: Sequence[EarlierVersion],
    policy: Policy = Policy.STRICT,
    incompatibilities: Incompatibilities = compare_directly,
) -> CompatibilityResult:
    """Compare with the latest, or with all from newest to oldest, up to the first that breaks.

    `earlier` is in version order, oldest first.
    """
    if level is Level.NONE:
        return CompatibilityResult()
    for one in reversed(earlier if level.is_transitive else earlier[-1:]):
        breaks = compare(level, proposed, one.schema, policy, incompatibilities)
        if breaks:
            return CompatibilityResult(breaks, one)
    return CompatibilityResult()


def compare(
    level: Level,
    proposed: ParsedSchema,
    old: ParsedSchema,
    policy: Policy = Policy.STRICT,
    incompatibilities: Incompatibilities = compare_directly,
) -> tuple[Break, ...]:
    """All breaks between two schemas; old-reads-new first, as the peer reports them."""
    if proposed.type is not old.type:
        sentence = "Incompatible because of different schema type"
        return (Break(Difference(DIFFERENT_TYPE, "/", sentence), new_is_reader=True),)
    breaks: list[Break] = []
    if level.is_forward:
        found = incompatibilities(old, proposed, policy)
        breaks += [Break(difference, new_is_reader=False) for difference in found]
    if level.is_backward:
        found = incompatibilities(proposed, old, policy)
        breaks += [Break(difference, new_is_reader=True) for difference in found]
    return tuple(breaks)


def incompatibility_messages(
    verdict: CompatibilityResult, level: Level, *, validates_fields: bool = False
) -> list[str]:
    """The verdict as the registry's API words it; empty if compatible."""
    if verdict.is_compatible or verdict.against is None:
        return []
    old = verdict.against
    lines = limit_messages([_worded(one, old.schema.type) for one in verdict.breaks])
    if _shows_old_schema(verdict, level):
        lines.append(f"{{oldSchemaVersion: {old.version}}}")
        lines.append(_worded_schema(old.schema.canonical))
    fields = str(validates_fields).lower()
    lines.append(f"{{validateFields: '{fields}', compatibility: '{level}'}}")
    return lines


def limit_messages(lines: list[str]) -> list[str]:
    """As many of the lines as go into one answer, and how many were left out."""
    characters = 0
    for index, line in enumerate(lines):
        characters += len(line)
        if characters > MESSAGES_CHARACTERS_MAX:
            kept = [one[:MESSAGES_CHARACTERS_MAX] for one in lines[: max(index, 1)]]
            left_out = len(lines) - len(kept)
            return [*kept, f"{{more: '{left_out} more differences are not listed'}}"]
    return lines


def _shows_old_schema(verdict: CompatibilityResult, level: Level) -> bool:
    """The peer checks both ways under FULL, and adds the old schema to the second answer only."""
    last = verdict.breaks[-1]
    if last.difference.kind == DIFFERENT_TYPE:
        return False
    return last.new_is_reader or not level.is_backward


def _worded_schema(text: str) -> str:
    if len(text) <= OLD_SCHEMA_CHARACTERS_MAX:
        return f"{{oldSchema: '{text}'}}"
    return f"{{oldSchema: <truncated> '{text[:OLD_SCHEMA_CHARACTERS_MAX]}...'}}"


def _worded(one: Break, language: SchemaType) -> str:
    difference = one.difference
    if difference.kind in _WORDLESS:
        return one.sentence
    if language is SchemaType.AVRO:
        return (
            f"{{errorType:'{difference.kind}', description:'{one.sentence}', "
            f"additionalInfo:'{difference.additional}'}}"
        )
    closing = "'" if language is SchemaType.JSON else '"'  # the peer's slip, and tools match on it
    return f'{{errorType:"{difference.kind}", description:"{one.sentence}{closing}}}'
