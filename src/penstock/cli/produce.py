"""`penstock produce`: send lines of a file or of standard input as messages."""

import sys
import time
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

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
from penstock.cli.message_input import InputMessage, LineReader, read_headers
from penstock.cli.options import LOCAL_BOOTSTRAP, LOCAL_REGISTRY, AsJson, Bootstrap, RegistryUrl
from penstock.cli.output import counted, show_json
from penstock.cli.value_format import ValueFormat, ValueFormatOption, encoders
from penstock.link.settings import IDEMPOTENT_PRODUCER

_QUEUED_MAX = 100_000
_MESSAGE_BYTES_MAX = 100_000_000  # about a whole request; below that the topic's limit counts
_FLUSH_S = 60.0
_FLUSH_STEP_S = 0.5  # between two checks for Ctrl-C
_ANY_PARTITION = -1


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


InputFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="[FILE]", exists=True, dir_okay=False, help="Lines to send.", show_default="stdin"
    ),
]
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
    file: InputFile = None,
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
    value_format: ValueFormatOption = ValueFormat.AUTO,
    registry: RegistryUrl = LOCAL_REGISTRY,
    bootstrap: Bootstrap = LOCAL_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Send each line of a file, or of standard input, as a message.

    If the topic has a schema, values are JSON and are encoded by it. With --json: a line for each
    message that arrived.
    """
    headers = read_headers(header or [])
    separator = None if key_separator is None else unescaped(key_separator)
    if separator == b"":
        raise typer.BadParameter("--key-separator needs at least one character")
    fixed = None if key is None else key.encode()
    sender = _MessageSender(
        topic, partition, bootstrap, as_json, compression=compression, acks=acks
    )
    with (
        encoders(topic, registry, value_format) as (encode_key, encode_value),
        nullcontext(sys.stdin.buffer) if file is None else file.open("rb") as stream,
    ):
        reader = LineReader(fixed, separator, headers, encode_key, encode_value)
        try:
            for number, line in enumerate(stream, start=1):
                text = line.removesuffix(b"\n").removesuffix(b"\r")
                read = reader.read_json if from_json else reader.read_line
                message = read(text, number, is_null=null_values)
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
            typer.echo(f"{counted(self.sent, 'message')} to {self.topic}", err=True)

    def check(self) -> None:
        """Report an error, if there was one, and exit."""
        if self.error is not None:
            fail_with(self.error, self.bootstrap, self.topic)
        if self.left:
            fail(f"not acknowledged within {_FLUSH_S:g} s: {counted(self.left, 'message')}")

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.error = self.error or error
            return
        self.sent += 1
        if self.as_json:
            position = {"partition": message.partition(), "offset": message.offset()}
            show_json({"topic": message.topic(), **position})
