"""How `penstock consume` prints messages: by a format of fields, or as JSON."""

import base64
import json
import re
import sys
from collections.abc import Callable
from typing import Any, Final

import typer
from confluent_kafka import Message

from penstock.cli.connect import unescaped
from penstock.cli.error_output import fail
from penstock.cli.output import show_json
from penstock.cli.value_format import MessageDecoder, UnfitValueError
from penstock.serde.frame import Side

_FIELD: Final = re.compile(rb"%([a-zA-Z%])")
_LETTERS: Final = frozenset((b"t", b"p", b"o", b"T", b"k", b"v", b"s", b"h", b"%"))
Show = Callable[[Message], None]


def formatter(format_text: str, decoder: MessageDecoder) -> Show:
    """Prints messages by a format such as `%k %v\\n`."""
    pattern = unescaped(format_text)
    for letter in _FIELD.findall(pattern):
        if letter not in _LETTERS:
            raise typer.BadParameter(
                f"--format has no field %{letter.decode()}: use %t %p %o %T %k %v %h, "
                "and %% is a percent sign"
            )
    write = sys.stdout.buffer.write

    def show(message: Message) -> None:
        write(_FIELD.sub(lambda match: _field(message, match[1], decoder), pattern))

    return show


def _field(message: Message, letter: bytes, decoder: MessageDecoder) -> bytes:
    match letter:
        case b"t":
            return str(message.topic()).encode()
        case b"p":
            return str(message.partition()).encode()
        case b"o":
            return str(message.offset()).encode()
        case b"T":
            return str(message.timestamp()[1]).encode()
        case b"k":
            return _text(_decoded(message, Side.KEY, decoder))
        case b"v" | b"s":
            return _text(_decoded(message, Side.VALUE, decoder))
        case b"h":
            pairs = (name.encode() + b"=" + (value or b"") for name, value in _headers(message))
            return b",".join(pairs)
        case _:
            return b"%"


def json_output(decoder: MessageDecoder) -> Show:
    """Prints messages as JSON, one per line."""

    def show(message: Message) -> None:
        show_json(
            {
                "topic": message.topic(),
                "partition": message.partition(),
                "offset": message.offset(),
                "timestamp": message.timestamp()[1],
                "key": _readable(_decoded(message, Side.KEY, decoder)),
                "value": _readable(_decoded(message, Side.VALUE, decoder)),
                "headers": [[name, _readable(value)] for name, value in _headers(message)],
            }
        )

    return show


def _decoded(message: Message, side: Side, decoder: MessageDecoder) -> Any:
    content = message.key() if side is Side.KEY else message.value()
    topic = message.topic() or ""
    try:
        return decoder.decode(topic, side, content, _headers(message))
    except UnfitValueError as error:
        position = f"{topic}:{message.partition()}:{message.offset()}"
        fail(f"{position}: {error}. `penstock frame decode {position}` explains its bytes.")


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    return message.headers() or []  # type: ignore[return-value]  # consumed values are bytes


def _text(value: Any) -> bytes:
    """Bytes as they are, a decoded value as JSON."""
    if value is None or isinstance(value, bytes):
        return value or b""
    return json.dumps(value, ensure_ascii=False).encode()


def _readable(value: Any) -> Any:
    """Text, other bytes in base64, and decoded values as they are."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
