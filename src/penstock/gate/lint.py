"""Warnings beside the rules: changes that a level allows and that can still cause trouble.

A lint never refuses anything: it says what can go wrong, and what to do instead. Each language has
a module `lint_<language>` with a generator `lints(proposed, earlier)`.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from itertools import islice
from typing import Final, NamedTuple, Protocol, cast

from penstock.schemas.model import ParsedSchema, SchemaType

LINTS_MAX: Final = 1_000  # of one schema, the first in order
_MODULES: Final[Mapping[SchemaType, str]] = {
    SchemaType.AVRO: "penstock.gate.lint_avro",
    SchemaType.PROTOBUF: "penstock.gate.lint_protobuf",
    SchemaType.JSON: "penstock.gate.lint_json",
}


class Lint(NamedTuple):
    """One warning."""

    kind: str  # such as LOGICAL_TYPE_CHANGED
    path: str  # in the proposed schema
    message: str  # what can go wrong
    remedy: str  # what to do instead


class _Linter(Protocol):
    def lints(self, proposed: ParsedSchema, earlier: ParsedSchema | None) -> Iterator[Lint]: ...


def lint(proposed: ParsedSchema, earlier: ParsedSchema | None = None) -> tuple[Lint, ...]:
    """The warnings about `proposed` as the successor of `earlier`, or as a first version."""
    if earlier is not None and earlier.type is not proposed.type:
        return ()
    return tuple(islice(_linter(proposed.type).lints(proposed, earlier), LINTS_MAX))


def _linter(language: SchemaType) -> _Linter:
    return cast("_Linter", import_module(_MODULES[language]))
