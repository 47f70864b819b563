"""Whether a proposed schema may follow the versions of a subject, by the subject's level.

This module decides which pairs are compared, in which direction and in which order; the languages
compare two schemas. The messages are Confluent's, because people and tools match on them.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from penstock.schemas.compare_limits import UNCHECKABLE
from penstock.schemas.model import Difference, ParsedSchema, Policy, SchemaType

OLD_SCHEMA_CHARACTERS_MAX: Final = 10 * 1024
MESSAGES_CHARACTERS_MAX: Final = 256 * 1024  # of one response, without the old schema
DIFFERENT_TYPE: Final = "DIFFERENT_SCHEMA_TYPE"
_OUR_KINDS: Final = frozenset((DIFFERENT_TYPE, UNCHECKABLE))  # shown in the API as a sentence only

# (reader, writer, policy) -> why the reader cannot read what the writer wrote. Also implemented
# by `SchemaCache`, which remembers results.
Incompatibilities = Callable[[ParsedSchema, ParsedSchema, Policy], tuple[Difference, ...]]


def compare_directly(
    reader: ParsedSchema, writer: ParsedSchema, policy: Policy
) -> tuple[Difference, ...]:
    """Compare without a cache."""
    return reader.incompatibilities(writer, policy)


class Level(StrEnum):
    """What a subject guarantees to its producers and consumers."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"  # the new schema reads what the latest wrote: consumers upgrade first
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"  # the latest schema reads what the new one writes: producers upgrade first
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"  # both: any order
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        """Every version is compared, not only the latest."""
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
    """A registered version."""

    version: int
    schema: ParsedSchema


class Break(NamedTuple):
    """One difference, and which schema fails to read the other's events."""

    difference: Difference
    new_is_reader: bool

    @property
    def sentence(self) -> str:
        """The difference in words, with the schemas as "old" and "new"."""
        if self.new_is_reader:
            return self.difference.describe(reader="new", writer="old")
        return self.difference.describe(reader="old", writer="new")


class CompatibilityResult(NamedTuple):
    """Compatible without breaks; otherwise the version that broke, and all reasons."""

    breaks: tuple[Break, ...] = ()
    against: EarlierVersion | None = None

    @property
    def is_compatible(self) -> bool:
        """Whether the level allows the proposed schema."""
        return not self.breaks


def check(
    level: Level,
    proposed: ParsedSchema,
    earlier: Sequence[EarlierVersion],
    policy: Policy = Policy.STRICT,
    incompatibilities: Incompatibilities = compare_directly,
) -> CompatibilityResult:
    """Compare with the latest version, or with all from newest to oldest up to the first break.

    `earlier` is in version order, oldest first.
    """
    if level is Level.NONE:
        return CompatibilityResult()
    for version in reversed(earlier if level.is_transitive else earlier[-1:]):
        breaks = compare(level, proposed, version.schema, policy, incompatibilities)
        if breaks:
            return CompatibilityResult(breaks, version)
    return CompatibilityResult()


def compare(
    level: Level,
    proposed: ParsedSchema,
    old: ParsedSchema,
    policy: Policy = Policy.STRICT,
    incompatibilities: Incompatibilities = compare_directly,
) -> tuple[Break, ...]:
    """All breaks between two schemas; old-reads-new first, as Confluent reports them."""
    if proposed.type is not old.type:
        sentence = "Incompatible because of different schema type"
        return (Break(Difference(DIFFERENT_TYPE, "/", sentence), new_is_reader=True),)
    breaks: list[Break] = []
    if level.is_forward:
        differences = incompatibilities(old, proposed, policy)
        breaks += [Break(difference, new_is_reader=False) for difference in differences]
    if level.is_backward:
        differences = incompatibilities(proposed, old, policy)
        breaks += [Break(difference, new_is_reader=True) for difference in differences]
    return tuple(breaks)


def incompatibility_messages(
    result: CompatibilityResult, level: Level, *, validates_fields: bool = False
) -> list[str]:
    """The result in the words of the registry's API; empty if compatible."""
    if result.is_compatible or result.against is None:
        return []
    old = result.against
    lines = limit_messages([_break_message(reason, old.schema.type) for reason in result.breaks])
    if _shows_old_schema(result, level):
        lines.append(f"{{oldSchemaVersion: {old.version}}}")
        lines.append(_old_schema_message(old.schema.canonical))
    fields = str(validates_fields).lower()
    lines.append(f"{{validateFields: '{fields}', compatibility: '{level}'}}")
    return lines


def limit_messages(lines: list[str]) -> list[str]:
    """As many of the lines as fit one response, and how many were left out."""
    characters = 0
    for index, line in enumerate(lines):
        characters += len(line)
        if characters > MESSAGES_CHARACTERS_MAX:
            first = [text[:MESSAGES_CHARACTERS_MAX] for text in lines[: max(index, 1)]]
            left_out = len(lines) - len(first)
            return [*first, f"{{more: '{left_out} more differences are not listed'}}"]
    return lines


def _shows_old_schema(result: CompatibilityResult, level: Level) -> bool:
    """Under FULL, Confluent checks both directions and shows the old schema after the second."""
    last = result.breaks[-1]
    if last.difference.kind == DIFFERENT_TYPE:
        return False
    return last.new_is_reader or not level.is_backward


def _old_schema_message(text: str) -> str:
    if len(text) <= OLD_SCHEMA_CHARACTERS_MAX:
        return f"{{oldSchema: '{text}'}}"
    return f"{{oldSchema: <truncated> '{text[:OLD_SCHEMA_CHARACTERS_MAX]}...'}}"


def _break_message(reason: Break, language: SchemaType) -> str:
    difference = reason.difference
    if difference.kind in _OUR_KINDS:
        return reason.sentence
    if language is SchemaType.AVRO:
        return (
            f"{{errorType:'{difference.kind}', description:'{reason.sentence}', "
            f"additionalInfo:'{difference.additional}'}}"
        )
    # Confluent closes JSON's with the wrong quote, and tools match on it.
    closing = "'" if language is SchemaType.JSON else '"'
    return f'{{errorType:"{difference.kind}", description:"{reason.sentence}{closing}}}'
