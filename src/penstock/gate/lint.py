"""Warnings beside the rules: changes that a level allows and a person would think twice about.

A lint never refuses anything. It says what will surprise somebody, and how to mend it. Each
language has its own in `<language>/lints.py`, a generator `lints(proposed, earlier)`.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from itertools import islice
from typing import Final, NamedTuple, Protocol, cast

from penstock.schemas.model import ParsedSchema, SchemaType

LINTS_MAX: Final = 1_000  # of one schema, the first that are found
_ROOMS: Final[Mapping[SchemaType, str]] = {
    SchemaType.AVRO: "penstock.gate.lint_avro",
    SchemaType.PROTOBUF: "penstock.gate.lint_protobuf",
    SchemaType.JSON: "penstock.gate.lint_json",
}


class Lint(NamedTuple):
    """One warning."""

    kind: str  # such as LOGICAL_TYPE_CHANGED
    path: str  # where in the proposed schema
    message: str  # what will surprise somebody
    remedy: str  # what to do instead


class _Linter(Protocol):
    def lints(self, proposed: ParsedSchema, earlier: ParsedSchema | None) -> Iterator[Lint]: ...


def lint(proposed: ParsedSchema, earlier: ParsedSchema | None = None) -> tuple[Lint, ...]:
    """What to think twice about before `proposed` follows `earlier`, or comes first if None."""
    if earlier is not None and earlier.type is not proposed.type:
        return ()
    linter = cast(_Linter, import_module(_ROOMS[proposed.type]))
    return tuple(islice(linter.lints(proposed, earlier), LINTS_MAX))
