"""A record's bytes with what they mean beside them, for `penstock frame decode` and the console."""

from typing import Final, NamedTuple
from uuid import UUID

from penstock.schemas.model import SchemaType
from penstock.serde.frame import (
    PREFIX_BYTES,
    BadFrame,
    Frame,
    Headers,
    Side,
    read_frame,
    read_indexes,
)

ROW_BYTES: Final = 16
PAYLOAD_BYTES_MAX: Final = 4096  # of a payload that are shown


class Part(NamedTuple):
    """Some bytes in a row, and what they are."""

    where: str  # "value", or the record header's name
    position: int
    content: bytes
    meaning: str


def annotate(
    content: bytes,
    headers: Headers = (),
    side: Side = Side.VALUE,
    type: SchemaType | None = None,
) -> list[Part]:
    """The parts of a key or value; the last one is what is wrong if it is no frame.

    Message indexes are told apart from the payload only if the type is known to be Protobuf.
    """
    try:
        frame = read_frame(content, headers, side)
    except BadFrame as wrong:
        return [Part(str(side), 0, content[:PAYLOAD_BYTES_MAX], f"no frame: {wrong}")]
    where = side.header_name if frame.in_header else str(side)
    parts = _key_parts(frame, where)
    payload_at = 0 if frame.in_header else frame.position
    if type is SchemaType.PROTOBUF:
        try:
            indexes, end = read_indexes(frame.source, frame.position)
        except BadFrame as wrong:
            rest = frame.source[frame.position :][:PAYLOAD_BYTES_MAX]
            return [*parts, Part(where, frame.position, rest, f"no message indexes: {wrong}")]
        raw = frame.source[frame.position : end]
        parts.append(Part(where, frame.position, raw, f"message indexes {list(indexes)}"))
        payload_at = 0 if frame.in_header else end
    payload = content[payload_at:]
    told = f"payload, {len(payload)} bytes"
    if len(payload) > PAYLOAD_BYTES_MAX:
        told += f", the first {PAYLOAD_BYTES_MAX} shown"
    return [*parts, Part(str(side), payload_at, payload[:PAYLOAD_BYTES_MAX], told)]


def _key_parts(frame: Frame, where: str) -> list[Part]:
    if isinstance(frame.schema, UUID):
        return [
            Part(where, 0, frame.source[:1], "magic 1: a GUID follows"),
            Part(where, 1, frame.source[1 : frame.position], f"schema GUID {frame.schema}"),
        ]
    return [
        Part(where, 0, frame.source[:1], "magic 0: an id follows"),
        Part(where, 1, frame.source[1:PREFIX_BYTES], f"schema id {frame.schema}"),
    ]


def hexdump(parts: list[Part]) -> list[str]:
    """Lines of position, bytes, text and meaning; the meaning stands at a part's first line."""
    lines = []
    for part in parts:
        for start in range(0, max(1, len(part.content)), ROW_BYTES):
            row = part.content[start : start + ROW_BYTES]
            digits = row.hex(" ").ljust(ROW_BYTES * 3 - 1)
            text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
            meaning = part.meaning if start == 0 else ""
            place = f"{part.position + start:08x}"
            lines.append(f"{place}  {digits}  |{text.ljust(ROW_BYTES)}|  {meaning}".rstrip())
    return lines
