"""How `penstock produce` reads messages: text, or JSON lines as `consume --json` prints them."""

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from penstock.cli.error_output import fail
from penstock.cli.value_format import Encode, UnfitValueError
from penstock.serde.frame import Side

_TIMESTAMP_MAX: Final = (1 << 63) - 1
RecordHeaders = list[tuple[str, str | bytes | None]]
_Result = TypeVar("_Result")


class InputMessage(NamedTuple):
    """A message to send."""

    key: bytes | None
    value: bytes | None
    headers: RecordHeaders
    timestamp: int | None = None  # milliseconds; None: now


class LineReader:
    """Reads lines. Keys and values that have a schema are JSON, and are encoded by it."""

    def __init__(
        self,
        key: bytes | None,
        separator: bytes | None,
        headers: RecordHeaders,
        encode_key: Encode | None,
        encode_value: Encode | None,
    ) -> None:
        self._key, self._separator, self._headers = key, separator, headers
        self._encode_key, self._encode_value = encode_key, encode_value

    def read_line(self, line: bytes, number: int, *, is_null: bool) -> InputMessage:
        """A line of text, with its key before the separator. `is_null`: an empty value is null."""
        key, value = self._split(line)
        return InputMessage(
            None if key is None else _checked(number, "key", lambda: self._text_key(key)),
            None if is_null and not value else self._text_value(value, number),
            self._headers,
        )

    def _split(self, line: bytes) -> tuple[bytes | None, bytes]:
        if self._separator is None:
            return self._key, line
        key, is_split, value = line.partition(self._separator)
        return (key, value) if is_split else (self._key, line)

    def _text_key(self, key: bytes) -> bytes:
        """A key that its schema does not allow as text is JSON."""
        if self._encode_key is None:
            return key
        try:
            return self._encode_key(key.decode())
        except (UnfitValueError, UnicodeDecodeError) as error:
            try:
                return self._encode_key(json.loads(key))
            except ValueError:
                raise UnfitValueError(str(error)) from None

    def _text_value(self, value: bytes, number: int) -> bytes:
        encode = self._encode_value
        if encode is None:
            return value
        content = _parsed(value, number)
        return _checked(number, "value", lambda: encode(content))

    def read_json(self, line: bytes, number: int, *, is_null: bool) -> InputMessage:
        """A line of JSON with a value, and optionally a key, headers and a timestamp."""
        fields = _parsed(line, number)
        if not isinstance(fields, dict) or "value" not in fields:
            fail(f'line {number} is not {{"key": …, "value": …, "headers": [[name, value], …]}}')
        value = None if is_null and fields["value"] == "" else fields["value"]
        return InputMessage(
            _checked(number, "key", lambda: _encoded(fields.get("key"), self._encode_key)),
            _checked(number, "value", lambda: _encoded(value, self._encode_value)),
            _checked(number, "headers", lambda: self._json_headers(fields.get("headers") or ())),
            _read_timestamp(fields.get("timestamp"), number),
        )

    def _json_headers(self, pairs: Any) -> RecordHeaders:
        """Without those that name a schema, where the message names it in another way."""
        encoders = {Side.KEY: self._encode_key, Side.VALUE: self._encode_value}
        replaced = {side.header_name for side, encode in encoders.items() if encode is not None}
        try:
            named = [(str(name), value) for name, value in pairs]
        except (ValueError, TypeError):
            raise UnfitValueError("not [[name, value], …]") from None
        return [(name, _encoded(value, None)) for name, value in named if name not in replaced]


def _checked(number: int, what: str, read: Callable[[], _Result]) -> _Result:
    try:
        return read()
    except binascii.Error as error:
        fail(f"line {number}: {what}: invalid base64: {error}")
    except UnfitValueError as error:
        fail(f"line {number}: {what}: {error}. --value-format raw sends bytes as they are.")


def _parsed(text: bytes, number: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        fail(f"line {number} is not JSON: {error.msg} at column {error.colno}")
    except UnicodeDecodeError:
        fail(f"line {number} is not JSON: it is not UTF-8")


def _encoded(field: Any, encode: Encode | None) -> bytes | None:
    """Bytes from `{"base64": …}`; else by the schema; else text as it is, and the rest as JSON."""
    match field:
        case None:
            return None
        case {"base64": str(encoded), **others} if not others:
            return base64.b64decode(encoded, validate=True)
        case _ if encode is not None:
            return encode(field)
        case str():
            return field.encode()
        case _:
            return json.dumps(field, ensure_ascii=False).encode()


def _read_timestamp(field: Any, number: int) -> int | None:
    is_number = isinstance(field, int) and not isinstance(field, bool)
    if field is not None and not (is_number and -1 <= field <= _TIMESTAMP_MAX):
        fail(f"line {number} has a timestamp that is not milliseconds since 1970: {field!r}")
    timestamp: int | None = field
    return timestamp


def read_headers(pairs: list[str]) -> RecordHeaders:
    """The --header options."""
    headers: RecordHeaders = []
    for pair in pairs:
        name, separator, value = pair.partition("=")
        headers.append((name, value.encode() if separator else None))
    return headers
