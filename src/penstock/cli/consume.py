"""`penstock consume`: print messages, one per line."""

import base64
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any, Final
from uuid import uuid4

import typer
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from penstock.cli.connect import (
    WAIT_S,
    check_reachable,
    fail_with,
    kafka_errors,
    partitions_of,
    quiet_client,
    unescaped,
)
from penstock.cli.main import drop_output
from penstock.cli.options import LOCAL_BOOTSTRAP, AsJson, Bootstrap
from penstock.cli.output import show_json

_STARTS: Final = ("start", "beginning", "earliest")  # kcat's and Kafka's words as well
_ENDS: Final = ("end", "latest")
_START: Final = -2
_END: Final = -1
_OFFSET_MAX: Final = (1 << 63) - 1
_FIELD: Final = re.compile(rb"%([a-zA-Z%])")
_LETTERS: Final = frozenset((b"t", b"p", b"o", b"T", b"k", b"v", b"s", b"h", b"%"))
_BATCH: Final = 500

StartOffset = Annotated[
    str,
    typer.Option(
        "--offset",
        "-o",
        help="Where to start: start, end, N, -N (the last N of each partition) or @T "
        "(milliseconds). With a group: start or end, for partitions without a commit.",
    ),
]
Partitions = Annotated[
    list[int] | None,
    typer.Option(
        "--partition", "-p", help="Only this partition; may be repeated. Not with --group."
    ),
]
MessageFormat = Annotated[
    str,
    typer.Option(
        "--format",
        "-f",
        help="Format of a message: %t topic, %p partition, %o offset, %T timestamp, %k key, "
        "%v value, %h headers.",
    ),
]


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    offset: StartOffset = "start",
    partition: Partitions = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=0, help="Stop after this many messages.")
    ] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit", "-e", help="Stop at the end of every partition.")
    ] = False,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Join this group and commit offsets.")
    ] = None,
    format_text: MessageFormat = "%v\\n",
    bootstrap: Bootstrap = LOCAL_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Print messages from the start of a topic until Ctrl-C."""
    _check_combination(group, partition, offset)
    show = _show_json if as_json else _formatter(format_text)
    check_reachable(bootstrap)
    consumer = Consumer(
        quiet_client(
            bootstrap,
            {
                "group.id": group or f"penstock-consume-{uuid4().hex}",
                "auto.offset.reset": "earliest" if offset in _STARTS else "latest",
                "enable.auto.commit": group is not None,
                "enable.auto.offset.store": False,  # only printed messages are committed
                "enable.partition.eof": True,
            },
        )
    )
    with _closing(consumer):
        with kafka_errors(bootstrap, topic):
            _start(consumer, topic, offset, partition, group, bootstrap)
        for batch in _batches(consumer, exit_at_end, bootstrap, count):
            for message in batch:
                show(message)
            sys.stdout.flush()
            if group is not None:
                _store(consumer, batch)


@contextmanager
def _closing(consumer: Consumer) -> Iterator[None]:
    """On Ctrl-C, SIGTERM and a closed pipe, leave the group and exit without an error."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:  # as in `| head`
        drop_output()
    finally:
        consumer.close()
        signal.signal(signal.SIGTERM, before)


def _check_combination(group: str | None, partitions: list[int] | None, offset: str) -> None:
    if group is None:
        return
    if not group:
        raise typer.BadParameter("--group needs a name")
    if partitions:
        raise typer.BadParameter(
            "--partition and --group exclude each other: the group assigns partitions"
        )
    if offset not in _STARTS + _ENDS:
        raise typer.BadParameter(
            f"--offset {offset} with --group: use start or end, or `penstock group reset`"
        )


def _start(
    consumer: Consumer,
    topic: str,
    offset: str,
    partitions: list[int] | None,
    group: str | None,
    bootstrap: str,
) -> None:
    existing = partitions_of(consumer, topic, bootstrap, partitions or ())
    if group is not None:
        consumer.subscribe([topic])
    else:
        consumer.assign(_positions(consumer, topic, sorted(set(partitions or existing)), offset))


def _positions(
    consumer: Consumer, topic: str, partitions: list[int], offset: str
) -> list[TopicPartition]:
    """Where to start in each partition."""
    if offset in _STARTS + _ENDS:
        at = _START if offset in _STARTS else _END
        return [TopicPartition(topic, index, at) for index in partitions]
    if offset.startswith("@"):
        time_ms = max(_number(offset[1:]), 0)
        times = [TopicPartition(topic, index, time_ms) for index in partitions]
        return list(consumer.offsets_for_times(times, timeout=WAIT_S))
    number = _number(offset)
    positions = []
    for index in partitions:
        partition = TopicPartition(topic, index)
        start, end = consumer.get_watermark_offsets(partition, timeout=WAIT_S)
        # Deleted records are skipped, as retention may remove them at any time.
        first = max(start, number if number >= 0 else end + number)
        positions.append(TopicPartition(topic, index, first))
    return positions


def _number(text: str) -> int:
    if not text.removeprefix("-").isdecimal() or abs(int(text)) > _OFFSET_MAX:
        raise typer.BadParameter(f"--offset {text!r}: use start, end, N, -N or @milliseconds")
    return int(text)


def _batches(
    consumer: Consumer, exit_at_end: bool, bootstrap: str, count: int | None
) -> Iterator[list[Message]]:
    """Messages as they arrive, until `count`, or the end of every assigned partition."""
    total = 0
    ended: set[int] = set()
    while count is None or total < count:
        left = _BATCH if count is None else min(_BATCH, count - total)
        batch = []
        for message in consumer.consume(left, timeout=0.2):
            error = message.error()
            if error is None:
                batch.append(message)
                ended.discard(_partition(message))
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name for it
                ended.add(_partition(message))
            elif error.fatal() or not error.retriable():
                fail_with(error, bootstrap, message.topic())
        total += len(batch)
        if batch:
            yield batch
        if exit_at_end and ended and _has_ended(consumer, ended):
            return


def _has_ended(consumer: Consumer, ended: set[int]) -> bool:
    """In a group only the partitions of this member count: others read the rest."""
    assigned = {partition.partition for partition in consumer.assignment()}
    return assigned <= ended


def _store(consumer: Consumer, batch: list[Message]) -> None:
    """Let the next commit include these, because they were printed."""
    last = {_partition(message): message for message in batch}
    for message in last.values():
        with suppress(KafkaException):  # revoked meanwhile: the next member prints it again
            consumer.store_offsets(message)


def _formatter(format_text: str) -> Callable[[Message], None]:
    pattern = unescaped(format_text)
    for letter in _FIELD.findall(pattern):
        if letter not in _LETTERS:
            raise typer.BadParameter(
                f"--format has no field %{letter.decode()}: use %t %p %o %T %k %v %h, "
                "and %% is a percent sign"
            )
    write = sys.stdout.buffer.write

    def show(message: Message) -> None:
        write(_FIELD.sub(lambda match: _field(message, match[1]), pattern))

    return show


def _field(message: Message, letter: bytes) -> bytes:
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
            return message.key() or b""
        case b"v" | b"s":
            return message.value() or b""
        case b"h":
            pairs = (name.encode() + b"=" + (value or b"") for name, value in _headers(message))
            return b",".join(pairs)
        case _:
            return b"%"


def _show_json(message: Message) -> None:
    show_json(
        {
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "timestamp": message.timestamp()[1],
            "key": _readable(message.key()),
            "value": _readable(message.value()),
            "headers": [[name, _readable(value)] for name, value in _headers(message)],
        }
    )


def _partition(message: Message) -> int:
    index = message.partition()
    assert index is not None, "a consumed message has a partition"
    return index


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    return message.headers() or []  # type: ignore[return-value]  # consumed values are bytes


def _readable(content: bytes | None) -> Any:
    """Text, or other bytes in base64."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
