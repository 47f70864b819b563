"""`penstock produce`: lines of standard input become messages."""

import base64
import json
import sys
from collections.abc import Iterator
from typing import Annotated, Any, BinaryIO, NamedTuple

import typer
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from penstock.cli.reaching import (
    LOCAL,
    WAIT_S,
    AsJson,
    Bootstrap,
    check_reachable,
    client_settings,
    fail,
    show_json,
    tell,
    telling,
)

_QUEUED_MAX = 100_000
_FLUSH_S = 60.0
_ANY_PARTITION = -1


class Line(NamedTuple):
    """One message to send."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]]
    partition: int | None = None


def produce(
    topic: Annotated[str, typer.Argument()],
    key: Annotated[
        str | None, typer.Option("--key", "-k", help="The key of every message.")
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="Between key and value of a line.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", help="On every message: name=value.")
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p")] = None,
    null_values: Annotated[
        bool, typer.Option("--null", "-Z", help="An empty value is a tombstone.")
    ] = False,
    compression: Annotated[
        str, typer.Option("--compression", "-z", help="none, gzip, snappy, lz4 or zstd.")
    ] = "none",
    acks: Annotated[str, typer.Option(help="all, 1 or 0.")] = "all",
    from_json: Annotated[
        bool, typer.Option(help="Each line is JSON as `penstock consume --json` writes it.")
    ] = False,
    bootstrap: Bootstrap = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Send each line of standard input as a message. With --json: a line for each that arrived."""
    sender = _Sender(topic, bootstrap, as_json, compression=compression, acks=acks)
    headers = _read_headers(header or [])
    separator = None if key_separator is None else _unescaped(key_separator)
    fixed = None if key is None else key.encode()
    for text in _lines(sys.stdin.buffer):
        if from_json:
            line = _read_json(text)
        else:
            own, value = _split(text, separator)
            line = Line(own if own is not None else fixed, value, headers)
        if null_values and not line.value:
            line = line._replace(value=None)
        sender.send(line, partition if line.partition is None else line.partition)
    sender.finish()


class _Sender:
    """A producer that stops at the first message that cannot be delivered."""

    def __init__(
        self, topic: str, bootstrap: str, as_json: bool, *, compression: str, acks: str
    ) -> None:
        self.topic, self.bootstrap, self.as_json = topic, bootstrap, as_json
        check_reachable(bootstrap)
        self.sent = 0
        self.error: KafkaError | None = None
        settings = client_settings(
            bootstrap,
            compression_type=compression,
            acks=acks,
            linger_ms=5,
            enable_idempotence=acks == "all",
            queue_buffering_max_messages=_QUEUED_MAX,
        )
        try:
            self._producer = Producer(settings)
        except KafkaException as refusal:
            raise typer.BadParameter(refusal.args[0].str()) from None
        with telling(bootstrap, topic):
            found = self._producer.list_topics(topic, timeout=WAIT_S / 2).topics[topic]
        if found.error is not None:
            tell(found.error, bootstrap, topic)

    def send(self, line: Line, partition: int | None) -> None:
        while True:
            try:
                self._producer.produce(
                    self.topic,
                    value=line.value,
                    key=line.key,
                    headers=line.headers or None,
                    on_delivery=self._on_delivery,
                    partition=_ANY_PARTITION if partition is None else partition,
                )
                break
            except BufferError:  # as many are under way as may be: wait for some to arrive
                self._producer.poll(0.1)
            except KafkaException as refusal:
                tell(refusal.args[0], self.bootstrap, self.topic)
        self._producer.poll(0)
        self._check()

    def finish(self) -> None:
        left = self._producer.flush(_FLUSH_S)
        self._check()
        if left:
            fail(f"{left} messages were not acknowledged within {_FLUSH_S:g} s")
        if not self.as_json:
            typer.echo(f"{self.sent} messages to {self.topic}", err=True)

    def _check(self) -> None:
        if self.error is not None:
            tell(self.error, self.bootstrap, self.topic)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.error = self.error or error
            return
        self.sent += 1
        if self.as_json:
            place = {"partition": message.partition(), "offset": message.offset()}
            show_json({"topic": message.topic(), **place})


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    for line in stream:
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def _split(line: bytes, separator: bytes | None) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    key, found, value = line.partition(separator)
    return (key, value) if found else (None, line)


def _unescaped(text: str) -> bytes:
    return text.encode().decode("unicode_escape").encode("latin-1")


def _read_headers(pairs: list[str]) -> list[tuple[str, str | bytes | None]]:
    headers: list[tuple[str, str | bytes | None]] = []
    for pair in pairs:
        name, found, value = pair.partition("=")
        headers.append((name, value.encode() if found else None))
    return headers


def _read_json(text: bytes) -> Line:
    try:
        fields = json.loads(text)
        return Line(
            _read_bytes(fields.get("key")),
            _read_bytes(fields.get("value")),
            [(name, _read_bytes(value)) for name, value in fields.get("headers") or ()],
        )
    except (ValueError, TypeError, AttributeError) as error:
        fail(f"not a message in JSON: {text[:80]!r} ({error})")


def _read_bytes(field: Any) -> bytes | None:
    if field is None:
        return None
    if isinstance(field, dict):
        return base64.b64decode(field["base64"])
    return field.encode() if isinstance(field, str) else json.dumps(field).encode()
