"""One event in one language: what serializers need of Avro, Protobuf and JSON alike.

An encoder turns a value into a payload, a decoder turns a frame into a value. Both belong to one
schema, are made once and used for many events, from any thread. Neither calls a registry.
"""

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from penstock.schemas.model import ParsedSchema
from penstock.serde.frame import Frame

if TYPE_CHECKING:
    from penstock.serde.contract import Contract

Indexes: TypeAlias = tuple[int, ...]  # Protobuf: the path to a message in its file
Payload: TypeAlias = tuple[bytes, Indexes | None]


class InvalidValueError(Exception):
    """A value that the schema does not allow: where, and why."""


class EventEncoder(Protocol):
    """Encodes values of one schema."""

    def encode(self, value: Any) -> Payload:
        """The payload, or InvalidValueError."""


class EventDecoder(Protocol):
    """Decodes what one schema wrote, as another one may see it."""

    def decode(self, frame: Frame) -> Any:
        """The value; raises DecodeError or BadFrameError."""


class ReadAs(NamedTuple):
    """How a program sees its events."""

    schema: ParsedSchema | None = None  # the reader's; None: as they were written
    message_type: Any = None  # Protobuf: a generated class
    message_name: str | None = None  # Protobuf: only this message
    as_dicts: bool = False  # Protobuf: dicts instead of messages
    validate: bool = True  # JSON: check each value against the schema
    assert_formats: bool = False  # JSON: `format` included
    plain_indexes: bool = False  # Protobuf: the topic was written by old Python clients


def no_message(*_arguments: object, **_options: object) -> None:
    """In place of the functions of a language that find messages, where a schema has one type."""
    return


class EventCodec(Protocol):
    """The module `event` of a language."""

    def event_encoder(self, schema: ParsedSchema, contract: "Contract") -> EventEncoder:
        """Encodes values as a contract has it."""

    def event_decoder(self, writer: ParsedSchema, read_as: ReadAs) -> EventDecoder:
        """Decodes what a schema wrote."""

    def message_name(
        self, writer: ParsedSchema, frame: Frame, *, plain_indexes: bool
    ) -> str | None:
        """The message that a frame names; None in languages whose schemas have only one."""
