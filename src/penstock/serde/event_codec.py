"""One event in one language: what a serializer needs of Avro, Protobuf and JSON alike.

An encoder turns a value into a payload, a decoder a frame into a value. Both belong to one schema,
are made once and used for many events, from any thread. Neither talks to a registry.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from penstock.schemas.model import ParsedSchema
from penstock.serde.frame import Frame


class Misfit(Exception):
    """A value that the schema does not allow: where, and why."""


class Written(NamedTuple):
    """What one value became."""

    payload: bytes
    indexes: Sequence[int] | None = None  # Protobuf only


class EventEncoder(Protocol):
    """Writes values of one schema."""

    def encode(self, value: Any) -> Written:
        """The payload, or Misfit."""


class EventDecoder(Protocol):
    """Reads what one schema wrote, as another may see it."""

    def decode(self, frame: Frame) -> Any:
        """The value; raises DecodeError or BadFrame."""


class ReadAs(NamedTuple):
    """What a program wants to see of its events."""

    schema: ParsedSchema | None = None  # the reader's; None: as they were written
    message_type: Any = None  # Protobuf: a generated class
    message_name: str | None = None  # Protobuf: only this message
    as_dicts: bool = False  # Protobuf: dicts instead of messages
    validate: bool = True  # JSON: check each value against the schema
    assert_formats: bool = False  # JSON: `format` included
    plain_indexes: bool = False  # Protobuf: the topic was written by old Python clients
