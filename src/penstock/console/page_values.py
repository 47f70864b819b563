"""Keys, values and headers as the JSON that pages show. Pure.

    {"format": "avro", "data": {"cents": 1250, "paid_by": {"base64": "AAEC"}}}

JavaScript has no integers beyond 2^53, so larger ones are texts. Bytes are `{"base64": …}`, dates
and decimals the text that they are written as.
"""

import math
from base64 import b64encode
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any, Final, NamedTuple

import msgspec

SAFE_INTEGER_MAX: Final = (1 << 53) - 1


class DecodedSide(NamedTuple):
    """A key or a value: how it was written, what it is, and why it could not be decoded."""

    format: str  # avro | protobuf | json | text | bytes
    value: Any
    schema_id: int | None = None
    error: str | None = None

    def document(self) -> dict[str, Any]:
        """As pages get it."""
        rendered = {"format": self.format, "data": page_value(self.value)}
        return rendered if self.error is None else {**rendered, "error": self.error}


def page_value(value: Any) -> Any:
    """A decoded value as JSON that a page reads without loss."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if -SAFE_INTEGER_MAX <= value <= SAFE_INTEGER_MAX else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes() | bytearray() | memoryview():
            return {"base64": b64encode(value).decode()}
        case datetime() | date() | time():
            return value.isoformat()
        case Mapping():
            return {str(name): page_value(each) for name, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [page_value(each) for each in value]
    return str(value)  # decimals, UUIDs, durations


def plain_side(content: bytes, *, is_key: bool) -> DecodedSide:
    """Bytes without a schema: JSON, text or bytes. A key is JSON only in braces."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return DecodedSide("bytes", content)
    if not is_key or text[:1] in ("{", "["):
        try:
            return DecodedSide("json", msgspec.json.decode(content))
        except (msgspec.DecodeError, RecursionError):
            pass
    return DecodedSide("text", text)
