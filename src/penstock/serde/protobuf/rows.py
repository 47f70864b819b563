"""What kernels cannot do, row by row with upb: columns of messages that contain themselves.

Arrow has no type for a tree, so such a column is the text of the value in Protobuf's own JSON, with
fields named as in the schema; google.protobuf.Struct is the JSON it stands for.
"""

import json
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from penstock.columns.protobuf.read_program import ProtobufFault
from penstock.serde.protobuf.types import Descriptor, is_map

_UNSAYABLE = (json_format.Error, ValueError, TypeError, KeyError, RecursionError)


class ProtobufRowDecoder:
    """Decodes some fields of single payloads."""

    def __init__(self, message_type: Any, names: tuple[str, ...]) -> None:
        self._message_type = message_type
        by_name = message_type.DESCRIPTOR.fields_by_name
        self._fields = [by_name[name] for name in names]

    def decode(self, payload: bytes) -> tuple[dict[str, str | None], ProtobufFault]:
        """The text of each field, and a fault."""
        try:
            message = self._message_type.FromString(payload)
        except DecodeError:
            return {}, ProtobufFault.UNFIT
        try:
            return {field.name: _text(field, message) for field in self._fields}, ProtobufFault.OK
        except _UNSAYABLE:
            return {}, ProtobufFault.UNFIT


def _text(field: Descriptor, message: Any) -> str | None:
    if not field.is_repeated and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    plain: Any
    if is_map(field):
        plain = {_key(key): _plain(value[key]) for key in value}
    elif field.is_repeated:
        plain = [_plain(item) for item in value]
    else:
        plain = _plain(value)
    return json.dumps(plain, ensure_ascii=False)


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _plain(message: Any) -> Any:
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


class ProtobufRowEncoder:
    """Encodes single fields from their JSON."""

    def __init__(self, message_type: Any) -> None:
        self._message_type = message_type

    def encode(self, texts: dict[str, str | None]) -> tuple[bytes, ProtobufFault]:
        """The fields as they are in a payload, and a fault."""
        try:
            values = {name: json.loads(text) for name, text in texts.items() if text is not None}
            message = json_format.ParseDict(values, self._message_type())
            return message.SerializePartialToString(), ProtobufFault.OK
        except _UNSAYABLE:
            return b"", ProtobufFault.UNFIT
