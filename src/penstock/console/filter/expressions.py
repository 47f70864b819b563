"""What a filter consists of."""

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Final, TypeAlias

Literal: TypeAlias = str | int | Decimal | bool | None
Step: TypeAlias = str | int  # a member of an object, or a place in a list


class Root(StrEnum):
    """What a field is part of."""

    KEY = "key"
    VALUE = "value"
    HEADERS = "headers"
    PARTITION = "partition"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"


PATH_ROOTS: Final = frozenset((Root.KEY, Root.VALUE, Root.HEADERS))  # the others are numbers


class Operator(StrEnum):
    """How a field is compared."""

    EQUAL = "=="
    UNEQUAL = "!="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    CONTAINS = "contains"
    STARTS_WITH = "startswith"


@dataclass(frozen=True, slots=True)
class RecordField:
    """A place in a record: `value.customer.id`."""

    root: Root
    path: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """A field compared with a literal."""

    field: RecordField
    operator: Operator
    literal: Literal


@dataclass(frozen=True, slots=True)
class Membership:
    """A field that equals one of several literals."""

    field: RecordField
    literals: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Negation:
    """What must not hold."""

    part: "Expression"


@dataclass(frozen=True, slots=True)
class Conjunction:
    """Parts of which all hold."""

    parts: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Disjunction:
    """Parts of which one holds."""

    parts: tuple["Expression", ...]


Expression: TypeAlias = Comparison | Membership | Negation | Conjunction | Disjunction
