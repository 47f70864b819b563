"""What a topic's keys or values are written with and read as: a schema and how it is used.

Also the subject of the registry that they are registered under.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, assert_never

from penstock.schemas.model import Reference, SchemaText, SchemaType
from penstock.serde.errors import ArgumentError, ClientError
from penstock.serde.frame import Side
from penstock.serde.language import SUFFIX_LIST, type_of_file


class SubjectNames(StrEnum):
    """The strategies, by the names that other clients' settings give them."""

    TOPIC = "TopicNameStrategy"  # orders-value: one type of event per topic
    RECORD = "RecordNameStrategy"  # com.shop.Order: the same contract in every topic
    TOPIC_RECORD = "TopicRecordNameStrategy"  # orders-com.shop.Order: several types in a topic

    @property
    def needs_record(self) -> bool:
        """Whether the schema's own name is part of the subject."""
        return self is not SubjectNames.TOPIC


def subject_name(names: SubjectNames, topic: str, side: Side, record_name: str | None) -> str:
    """The subject; `record_name` is the full record or message name, the title in JSON Schema."""
    if names is SubjectNames.TOPIC:
        return f"{topic}-{side}"
    if not record_name:
        raise ClientError(
            f"{names} needs a name in the schema of {topic}: a record (Avro), a message "
            "(Protobuf) or a title (JSON Schema). Name it, or use TopicNameStrategy."
        )
    match names:
        case SubjectNames.RECORD:
            return record_name
        case SubjectNames.TOPIC_RECORD:
            return f"{topic}-{record_name}"
        case _:
            assert_never(names)


_WELL_KNOWN: Final = ("google/protobuf/", "google/type/", "confluent/")


class Form(StrEnum):
    """Where an event says which schema wrote it."""

    PREFIX = "prefix"  # five bytes before the payload; every client reads it
    HEADER = "header"  # a record header with the GUID; the payload stays as it is


@dataclass(frozen=True, slots=True)
class Contract:
    """A schema and how it is used.

    `schema` is the text, the path of an .avsc, .proto or .json file, or a generated Protobuf class.
    Without one, events are written with the latest version that the subject has.

    Contract(Path("order.avsc"))                     register if it is new, and write with it
    Contract(Path("order.avsc"), auto_register=False)   must be registered: others decide on changes
    Contract()                                       the subject's latest version
    """

    schema: Any = None  # str | Path | a Message class | None
    type: SchemaType | None = None  # of a path by its suffix, of a text Avro unless given here
    references: tuple[Reference, ...] = ()
    names: SubjectNames = SubjectNames.TOPIC
    auto_register: bool = True
    normalize: bool = False
    form: Form = Form.PREFIX
    assert_formats: bool = False  # JSON Schema: check `format` too; else it is an annotation
    message: str | None = None  # Protobuf: the full name, where it is not the first message

    def source(self, refer: Callable[[str, SchemaText], Reference]) -> SchemaText | None:
        """The schema as written, None for the latest; `refer` registers what a message imports."""
        match self.schema:
            case None:
                return None
            case Path() as path:
                kind = self.type or type_of_file(path)
                if kind is None:
                    raise ArgumentError(
                        f"{path}: unknown suffix; use {SUFFIX_LIST}, or give "
                        "Contract(..., type=SchemaType.AVRO)"
                    )
                return SchemaText(kind, _text_of(path), self.references)
            case str() as text:
                if type_of_file(Path(text)) is not None and "\n" not in text:
                    raise ArgumentError(
                        f"{text!r} is the name of a file, not a schema: give Path({text!r})"
                    )
                return SchemaText(self.type or SchemaType.AVRO, text, self.references)
            case message_type if hasattr(message_type, "DESCRIPTOR"):
                return _source_of(message_type.DESCRIPTOR.file, refer)
            case other:
                raise ArgumentError(
                    f"{other!r} is not a schema: give its text, the path of its file, or a "
                    "generated Protobuf class"
                )

    @property
    def message_type(self) -> Any:
        """Protobuf: the generated class, if that is what the schema was given as."""
        return self.schema if hasattr(self.schema, "DESCRIPTOR") else None

    @property
    def message_name(self) -> str | None:
        """Protobuf: which message dicts are written as."""
        if self.message is None and self.message_type is not None:
            return str(self.message_type.DESCRIPTOR.full_name)
        return self.message


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        raise ArgumentError(f"the schema file {path} cannot be read: {failure}") from None


def _source_of(file: Any, refer: Callable[[str, SchemaText], Reference]) -> SchemaText:
    """A compiled file; its imports are registered under their paths, as other clients do."""
    references = tuple(
        refer(imported.name, _source_of(imported, refer))
        for imported in file.dependencies
        if not imported.name.startswith(_WELL_KNOWN)
    )
    text = base64.b64encode(file.serialized_pb).decode()
    return SchemaText(SchemaType.PROTOBUF, text, references)
