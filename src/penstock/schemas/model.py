"""What a schema is to everyone who does not care in which language it is written.

Tags on records and fields, put into the text of a schema or taken out of it.

A place is named by a path of words with dots between; what the words are is its language's own.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self

if TYPE_CHECKING:
    pass


UNCHECKABLE: Final = "UNCHECKABLE"  # a kind of difference that is ours: no verdict can be given
STEPS_MAX: Final = 300_000  # of one comparison of two schemas; about half a second
DIFFERENCES_MAX: Final = 1_000  # reported for two schemas, the first that are found
DIFFERENCES_CHARACTERS_MAX: Final = 1 << 20  # of their texts
TEXT_CHARACTERS_MAX: Final = 10 * 1024  # of one list or schema inside a text


class SchemaType(StrEnum):
    """The languages, by the names the registry's API gives them."""

    AVRO = "AVRO"
    PROTOBUF = "PROTOBUF"
    JSON = "JSON"


class Reference(NamedTuple):
    """A schema this one builds on: the name it is imported by, and where the registry has it."""

    name: str
    subject: str
    version: int


class SchemaText(NamedTuple):
    """A schema as somebody wrote it."""

    type: SchemaType
    text: str
    references: tuple[Reference, ...] = ()


# Reference name -> text of everything a schema reaches, its references' references included, those
# without imports of their own first.
Imports = Mapping[str, str]
NO_IMPORTS: Final[Imports] = MappingProxyType({})


class InvalidSchemaError(Exception):
    """The text is not a schema; the message says where and why."""


def check_encoding(text: str) -> None:
    """Refuse what cannot be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidSchemaError("the text holds half of a surrogate pair") from None


class Policy(StrEnum):
    """How strictly a JSON Schema change is judged."""

    STRICT = "STRICT"
    LENIENT = "LENIENT"


class Difference(NamedTuple):
    """One reason why a reader's schema cannot read what a writer's schema wrote."""

    kind: str  # the peer's name for it, such as READER_FIELD_MISSING_DEFAULT_VALUE
    path: str  # where in the schema
    description: str  # a sentence, with %(reader)s and %(writer)s for "new" and "old"
    additional: str = ""

    def describe(self, *, reader: str, writer: str) -> str:
        """The sentence, once it is known which side is the new one."""
        return self.description.replace("%(reader)s", reader).replace("%(writer)s", writer)


class BudgetExceededError(Exception):
    """Two schemas cannot be compared within the budget."""


class StepBudget:
    """Limits what one comparison may cost.

    Counts steps instead of seconds, so that a verdict does not depend on the machine. A step is
    about a microsecond and less than 200 bytes: a member of a type, a lookup; a pair of types to
    compare is several.
    """

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = STEPS_MAX

    def spend(self, steps: int = 1) -> None:
        """Count steps before they are taken; BudgetExceededError when none are left."""
        self._left -= steps
        if self._left < 0:
            raise BudgetExceededError(
                f"it would take more than {STEPS_MAX} steps, because the types of the two schemas "
                "refer to each other in too many combinations; use fewer or smaller unions, or "
                "split the schema"
            )


def bounded(differences: Iterable[Difference]) -> tuple[Difference, ...]:
    """The first differences, as many as are worth an answer; at least one if there is one."""
    kept: list[Difference] = []
    characters = 0
    for one in differences:
        characters += characters_of((one,))
        if kept and characters > DIFFERENCES_CHARACTERS_MAX:
            break
        kept.append(one)
        if len(kept) == DIFFERENCES_MAX:
            break
    return tuple(kept)


def characters_of(differences: Iterable[Difference]) -> int:
    """The size of their texts."""
    return sum(len(one.path) + len(one.description) + len(one.additional) for one in differences)


def shortened(text: str) -> str:
    """A list or schema as part of a text: long ones are cut."""
    return text if len(text) <= TEXT_CHARACTERS_MAX else f"{text[:TEXT_CHARACTERS_MAX]}..."


def uncheckable(reason: Exception | str, path: str) -> Difference:
    """What stands for a comparison that could not be made, in the peer's words."""
    sentence = f"Unexpected exception during compatibility check: {reason}"
    return Difference(UNCHECKABLE, path, sentence)


class ParsedSchema(Protocol):
    """A schema that was understood. Immutable."""

    @property
    def type(self) -> SchemaType: ...

    @property
    def canonical(self) -> str:
        """The text as the registry stores it."""

    @property
    def references(self) -> tuple[Reference, ...]: ...

    @property
    def name(self) -> str | None:
        """The full record or message name, the title in JSON Schema; None if it has none."""

    def normalized(self) -> Self:
        """The same schema with everything that has no meaning put in one order."""

    def tagged(self, tagging: "Tagging") -> Self:
        """The same schema with tags added to its text, or removed from it."""

    def formatted(self, form: str) -> str:
        """The text in another form (`resolved`, `serialized` …); canonical for an unknown one."""

    def equivalent(self, other: Self) -> bool:
        """Whether registering one while the other is there gives the same version."""

    def incompatibilities(
        self, writer: Self, policy: Policy = Policy.STRICT
    ) -> tuple[Difference, ...]:
        """Why this schema, as the reader's, cannot read what `writer` wrote; empty if it can."""


TAGS: Final = "confluent:tags"


class Entity(NamedTuple):
    """A record or a field."""

    is_record: bool
    path: str

    @property
    def words(self) -> list[str]:
        """The steps of the path; a dot in front says nothing."""
        return self.path.removeprefix(".").split(".")

    def missing(self) -> InvalidSchemaError:
        """What is said when it is not there."""
        return InvalidSchemaError(f"No matching path '{self.path}' found in the schema")


class Tagging(NamedTuple):
    """What is to be added and removed."""

    added: Mapping[Entity, tuple[str, ...]]
    removed: Mapping[Entity, tuple[str, ...]]

    @property
    def entities(self) -> list[Entity]:
        """All places that are spoken of, in order."""
        return list(dict.fromkeys([*self.added, *self.removed]))

    def changed(self, entity: Entity, tags: Iterable[str]) -> list[str]:
        """The tags that a place has afterwards."""
        gone = self.removed.get(entity, ())
        kept = dict.fromkeys([*tags, *self.added.get(entity, ())])
        return [tag for tag in kept if tag not in gone]

    def change_member(self, entity: Entity, place: dict[str, object]) -> None:
        """Do it in a JSON object, which has its tags in a member."""
        known = place.get(TAGS)
        tags = self.changed(entity, map(str, known) if isinstance(known, list) else ())
        if tags:
            place[TAGS] = tags
        else:
            place.pop(TAGS, None)
