"""A record's bytes with their meaning beside them, for `penstock frame decode`."""

from typing import Final, NamedTuple
from uuid import UUID

from penstock.schemas.model import SchemaType
from penstock.serde.frame import (
    PREFIX_BYTES,
    BadFrameError,
    Frame,
    Headers,
    Side,
    read_frame,
    read_indexes,
)
from penstock.serde.language import LANGUAGES

ROW_BYTES: Final = 16
PAYLOAD_BYTES_MAX: Final = 4096  # of a payload that are shown


class Annotation(NamedTuple):
    """Some consecutive bytes, and their meaning."""

    where: str  # "value", or the record header's name
    position: int
    content: bytes
    meaning: str


def annotate(
    content: bytes,
    headers: Headers = (),
    side: Side = Side.VALUE,
    schema_type: SchemaType | None = None,
) -> list[Annotation]:
    """The parts of a key or value; the last one says why, if it is not a frame.

    Message indexes are separated from the payload only if the language is known to have them.
    """
    try:
        frame = read_frame(content, headers, side)
    except BadFrameError as error:
        return [Annotation(str(side), 0, content[:PAYLOAD_BYTES_MAX], f"not a frame: {error}")]
    where = side.header_name if frame.in_header else str(side)
    parts = _key_parts(frame, where)
    payload_at = 0 if frame.in_header else frame.position
    if schema_type is not None and LANGUAGES[schema_type].has_messages:
        try:
            indexes, end = read_indexes(frame.source, frame.position)
        except BadFrameError as error:
            rest = frame.source[frame.position :][:PAYLOAD_BYTES_MAX]
            return [*parts, Annotation(where, frame.position, rest, f"no message indexes: {error}")]
        raw = frame.source[frame.position : end]
        parts.append(Annotation(where, frame.position, raw, f"message indexes {list(indexes)}"))
        payload_at = 0 if frame.in_header else end
    payload = content[payload_at:]
    meaning = f"payload, {len(payload)} bytes"
    if len(payload) > PAYLOAD_BYTES_MAX:
        meaning += f", the first {PAYLOAD_BYTES_MAX} shown"
    return [*parts, Annotation(str(side), payload_at, payload[:PAYLOAD_BYTES_MAX], meaning)]


def _key_parts(frame: Frame, where: str) -> list[Annotation]:
    if isinstance(frame.schema, UUID):
        return [
            Annotation(where, 0, frame.source[:1], "magic 1: a GUID follows"),
            Annotation(where, 1, frame.source[1 : frame.position], f"schema GUID {frame.schema}"),
        ]
    return [
        Annotation(where, 0, frame.source[:1], "magic 0: an id follows"),
        Annotation(where, 1, frame.source[1:PREFIX_BYTES], f"schema id {frame.schema}"),
    ]


def hexdump(parts: list[Annotation]) -> list[str]:
    """Lines of position, bytes, text and meaning; the meaning is on the first line of a part."""
    lines = []
    for part in parts:
        for start in range(0, max(1, len(part.content)), ROW_BYTES):
            row = part.content[start : start + ROW_BYTES]
            digits = row.hex(" ").ljust(ROW_BYTES * 3 - 1)
            text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
            meaning = part.meaning if start == 0 else ""
            position = f"{part.position + start:08x}"
            lines.append(f"{position}  {digits}  |{text.ljust(ROW_BYTES)}|  {meaning}".rstrip())
    return lines
