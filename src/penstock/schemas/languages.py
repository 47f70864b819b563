"""The language of a schema, found by its type. A language is imported when it is first met.

Protobuf's compiler alone costs more to import than everything Avro needs.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Final, Protocol, cast

from penstock.schemas.model import NO_IMPORTS, Imports, ParsedSchema, Reference, SchemaType, Source

_ROOMS: Final[Mapping[SchemaType, str]] = {
    SchemaType.AVRO: "penstock.schemas.avro",
    SchemaType.PROTOBUF: "penstock.schemas.protobuf",
    SchemaType.JSON: "penstock.schemas.json",
}


class _Language(Protocol):
    def parse(
        self, text: str, references: tuple[Reference, ...], imports: Imports, *, strict: bool
    ) -> ParsedSchema: ...


def parse(source: Source, imports: Imports = NO_IMPORTS, *, strict: bool = True) -> ParsedSchema:
    """Understand a schema, or raise InvalidSchema. Not strict is for what is stored already."""
    language = cast(_Language, import_module(_ROOMS[source.type]))
    return language.parse(source.text, source.references, imports, strict=strict)
