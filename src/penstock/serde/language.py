"""The languages of schemas: all that differs between Avro, Protobuf and JSON Schema is a row.

A language's codecs are imported when they are first used: Protobuf's compiler is heavy, and so are
the libraries behind columns.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from penstock.extras import require
from penstock.schemas.model import SchemaType

if TYPE_CHECKING:
    from penstock.serde.column_codec import ColumnCodec
    from penstock.serde.event_codec import EventCodec


class Language(NamedTuple):
    """A row."""

    type: SchemaType
    title: str  # as people write it
    file_suffix: str
    package: str  # with the modules `event`, `columns` and `types`
    extra: str | None = None  # that brings its libraries
    has_messages: bool = False  # a schema has several, and a frame says which one an event is

    @property
    def event_codec(self) -> "EventCodec":
        """Single events."""
        if self.extra is not None:
            require(self.extra)
        return cast("EventCodec", import_module(f"{self.package}.event"))

    @property
    def column_codec(self) -> "ColumnCodec":
        """Many events as Arrow columns."""
        if self.extra is not None:
            require(self.extra)
        require("arrow")
        return cast("ColumnCodec", import_module(f"{self.package}.columns"))


_ROWS: Final = (
    Language(SchemaType.AVRO, "Avro", ".avsc", "penstock.serde.avro"),
    Language(
        SchemaType.PROTOBUF,
        "Protobuf",
        ".proto",
        "penstock.serde.protobuf",
        extra="protobuf",
        has_messages=True,
    ),
    Language(SchemaType.JSON, "JSON Schema", ".json", "penstock.serde.json"),
)
LANGUAGES: Final[Mapping[SchemaType, Language]] = {row.type: row for row in _ROWS}
SUFFIXES: Final[Mapping[str, SchemaType]] = {row.file_suffix: row.type for row in _ROWS}
SUFFIX_LIST: Final = ", ".join(f"{row.file_suffix} ({row.title})" for row in _ROWS)


def type_of_file(path: Path) -> SchemaType | None:
    """The language of a schema file by its suffix; None if that is unknown."""
    return SUFFIXES.get(path.suffix)
