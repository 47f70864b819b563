"""`penstock produce`: send lines of standard input as messages."""

import base64
import binascii
import json
import sys
import time
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, BinaryIO, NamedTuple

import typer
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from penstock.cli.connect import (
    check_reachable,
    fail_with,
    kafka_errors,
    partitions_of,
    quiet_client,
    unescaped,
)
from penstock.cli.error_output import fail
from penstock.cli.options import LOCAL_BOOTSTRAP, AsJson, Bootstrap
from penstock.cli.output import show_json
from penstock.link.settings import IDEMPOTENT_PRODUCER

_QUEUED_MAX = 100_000
_MESSAGE_BYTES_MAX = 100_000_000  # about a whole request; below that the topic's limit counts
_FLUSH_S = 60.0
_FLUSH_STEP_S = 0.5  # between two checks for Ctrl-C
_ANY_PARTITION = -1
_TIMESTAMP_MAX = (1 << 63) - 1


class InputMessage(NamedTuple):
    """A message to send."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]]
    timestamp: int | None = None  # milliseconds; None: now


class CompressionType(StrEnum):
    """How batches are compressed."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    """Which replicas must have a message before it counts as sent."""

    ALL = "all"
    IN_SYNC = "-1"  # the protocol's number for all
    LEADER = "1"
    NONE = "0"


KeySeparator = Annotated[
    str | None,
    typer.Option("--key-separator", "-K", help="Separator between key and value of a line."),
]
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", help="Header of every message: name=value; may be repeated."),
]
TargetPartition = Annotated[
    int,
    typer.Option(
        "--partition",
        "-p",
        min=_ANY_PARTITION,
        help="Partition to write to; -1: by key, or any.",
    ),
]
FromJson = Annotated[
    bool,
    typer.Option(
        "--from-json",
        help="Read each line as JSON, as `penstock consume --json` prints it: value, and "
        "optionally key, headers and timestamp.",
    ),
]


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of every message.")] = None,
    key_separator: KeySeparator = None,
    header: Headers = None,
    partition: TargetPartition = _ANY_PARTITION,
    null_values: Annotated[
        bool, typer.Option("--null", "-Z", help="Send an empty value as a tombstone.")
    ] = False,
    compression: Annotated[
        CompressionType, typer.Option("--compression", "-z", help="Compression of batches.")
    ] = CompressionType.NONE,
    acks: Annotated[
        Acks, typer.Option(help="Which replicas must acknowledge a message.")
    ] = Acks.ALL,
    from_json: FromJson = False,
    bootstrap: Bootstrap = LOCAL_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Send each line of standard input as a message. With --json: a line for each that arrived."""
    headers = _read_headers(header or [])
    separator = None if key_separator is None else unescaped(key_separator)
    if separator == b"":
        raise typer.BadParameter("--key-separator needs at least one character")
    fixed = None if key is None else key.encode()
    sender = _MessageSender(
        topic, partition, bootstrap, as_json, compression=compression, acks=acks
    )
    try:
        for number, text in enumerate(_lines(sys.stdin.buffer), start=1):
            if from_json:
                message = _read_json(text, number)
            else:
                own, value = _split(text, separator)
                message = InputMessage(own if own is not None else fixed, value, headers)
            if null_values and not message.value:
                message = message._replace(value=None)
            sender.send(message)
    finally:  # also for messages before an invalid line, and before Ctrl-C
        sender.flush()
    sender.check()


class _MessageSender:
    """Stops at the first message that cannot be delivered."""

    def __init__(
        self,
        topic: str,
        partition: int,
        bootstrap: str,
        as_json: bool,
        *,
        compression: CompressionType,
        acks: Acks,
    ) -> None:
        self.topic, self.partition, self.bootstrap = topic, partition, bootstrap
        self.as_json = as_json
        check_reachable(bootstrap)
        self.sent = self.left = 0
        self.error: KafkaError | None = None
        settings = quiet_client(
            bootstrap,
            {
                **IDEMPOTENT_PRODUCER,
                "compression.type": compression.value,
                "acks": acks.value,
                "enable.idempotence": acks in (Acks.ALL, Acks.IN_SYNC),
                "queue.buffering.max.messages": _QUEUED_MAX,
                "message.max.bytes": _MESSAGE_BYTES_MAX,
            },
        )
        self._producer = Producer(settings)
        with kafka_errors(bootstrap, topic):
            required = () if partition == _ANY_PARTITION else (partition,)
            partitions_of(self._producer, topic, bootstrap, required)

    def send(self, message: InputMessage) -> None:
        optional: dict[str, Any] = {}
        if message.timestamp is not None:
            optional["timestamp"] = message.timestamp
        while True:
            try:
                self._producer.produce(
                    self.topic,
                    value=message.value,
                    key=message.key,
                    headers=message.headers or None,
                    on_delivery=self._on_delivery,
                    partition=self.partition,
                    **optional,
                )
                break
            except BufferError:  # the queue is full: wait for deliveries
                self._producer.poll(0.1)
            except KafkaException as refusal:
                fail_with(refusal.args[0], self.bootstrap, self.topic)
        self._producer.poll(0)
        self.check()

    def flush(self) -> None:
        """Wait for messages in flight, and report how many arrived."""
        deadline_s = time.monotonic() + _FLUSH_S
        while self._producer.flush(_FLUSH_STEP_S) and time.monotonic() < deadline_s:
            pass
        self.left = len(self._producer)
        if not self.as_json:
            typer.echo(f"{self.sent} messages to {self.topic}", err=True)

    def check(self) -> None:
        """Report an error, if there was one, and exit."""
        if self.error is not None:
            fail_with(self.error, self.bootstrap, self.topic)
        if self.left:
            fail(f"{self.left} messages were not acknowledged within {_FLUSH_S:g} s")

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.error = self.error or error
            return
        self.sent += 1
        if self.as_json:
            position = {"partition": message.partition(), "offset": message.offset()}
            show_json({"topic": message.topic(), **position})


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    for line in stream:
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def _split(line: bytes, separator: bytes | None) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    key, is_split, value = line.partition(separator)
    return (key, value) if is_split else (None, line)


def _read_headers(pairs: list[str]) -> list[tuple[str, str | bytes | None]]:
    headers: list[tuple[str, str | bytes | None]] = []
    for pair in pairs:
        name, separator, value = pair.partition("=")
        headers.append((name, value.encode() if separator else None))
    return headers


def _read_json(text: bytes, number: int) -> InputMessage:
    try:
        fields = json.loads(text)
    except json.JSONDecodeError as error:
        fail(f"line {number} is not JSON: {error.msg} at column {error.colno}")
    except UnicodeDecodeError:
        fail(f"line {number} is not JSON: it is not UTF-8")
    if not isinstance(fields, dict) or "value" not in fields:
        fail(f'line {number} is not {{"key": …, "value": …, "headers": [[name, value], …]}}')
    try:
        return InputMessage(
            _read_bytes(fields.get("key")),
            _read_bytes(fields["value"]),
            [(str(name), _read_bytes(value)) for name, value in fields.get("headers") or ()],
            _read_timestamp(fields.get("timestamp"), number),
        )
    except binascii.Error as error:
        fail(f"line {number} has invalid base64: {error}")
    except (ValueError, TypeError):
        fail(f"line {number} has headers that are not [[name, value], …]")


def _read_timestamp(field: Any, number: int) -> int | None:
    is_number = isinstance(field, int) and not isinstance(field, bool)
    if field is not None and not (is_number and -1 <= field <= _TIMESTAMP_MAX):
        fail(f"line {number} has a timestamp that is not milliseconds since 1970: {field!r}")
    timestamp: int | None = field
    return timestamp


def _read_bytes(field: Any) -> bytes | None:
    """Text as it is, bytes from `{"base64": …}`, all else as JSON."""
    match field:
        case None:
            return None
        case str():
            return field.encode()
        case {"base64": str(encoded), **others} if not others:
            return base64.b64decode(encoded, validate=True)
        case _:
            return json.dumps(field, ensure_ascii=False).encode()
