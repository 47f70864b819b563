"""What Avro and JSON Schema share in reading and writing JSON: strings as in Java, and errors."""

import json
import re
from json.encoder import encode_basestring
from typing import Final, NoReturn

from penstock.schemas.model import InvalidSchemaError

_CONTROL: Final = re.compile(r"[\x00-\x07\x0b\x0e-\x1f]")


def write_text(text: str) -> str:
    """A string in quotes, with control characters in upper case hexadecimal."""
    if _CONTROL.search(text) is None:
        return encode_basestring(text)
    quoted = encode_basestring(_CONTROL.sub("\0", text)).split("\\u0000")
    controls = [f"\\u{ord(character):04X}" for character in _CONTROL.findall(text)]
    return "".join(part + control for part, control in zip(quoted, [*controls, ""], strict=True))


def not_json(text: str, error: json.JSONDecodeError) -> InvalidSchemaError:
    """The error for a text that is not JSON."""
    if not text.strip():
        return InvalidSchemaError("the schema is empty")
    where = f"line {error.lineno} column {error.colno}"
    return InvalidSchemaError(f"not valid JSON: {error.msg} at {where}")


def refuse_constant(word: str) -> NoReturn:
    """Refuse NaN and infinities, which Python's JSON parser accepts."""
    raise InvalidSchemaError(f"not valid JSON: {word} is not a number in JSON")
