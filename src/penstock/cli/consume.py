"""`penstock consume`: print messages, one per line."""

import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Annotated, Final
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
)
from penstock.cli.error_output import fail
from penstock.cli.main import drop_output
from penstock.cli.message_output import formatter, json_output
from penstock.cli.options import LOCAL_BOOTSTRAP, LOCAL_REGISTRY, AsJson, Bootstrap, RegistryUrl
from penstock.cli.value_format import MessageDecoder, ValueFormat, ValueFormatOption

_STARTS: Final = ("start", "beginning", "earliest")  # kcat's and Kafka's words as well
_ENDS: Final = ("end", "latest")
_START: Final = -2
_END: Final = -1
_OFFSET_MAX: Final = (1 << 63) - 1
_BATCH: Final = 500
_PATTERN: Final = "^"  # librdkafka's sign of a pattern
_INTERNAL: Final = "__"

Topics = Annotated[
    list[str],
    typer.Argument(
        metavar="TOPIC",
        help="Names of topics, or patterns that begin with ^: regular expressions.",
    ),
]
Partition = tuple[str, int]
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
    topics: Topics,
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
    value_format: ValueFormatOption = ValueFormat.AUTO,
    registry: RegistryUrl = LOCAL_REGISTRY,
    bootstrap: Bootstrap = LOCAL_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Print messages from the start of topics until Ctrl-C.

    Values with a schema are printed as JSON.
    """
    _check_combination(group, partition, offset)
    patterns = [_compiled(topic) for topic in topics if topic.startswith(_PATTERN)]
    decoder = MessageDecoder(registry, value_format)
    show = json_output(decoder) if as_json else formatter(format_text, decoder)
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
    with closing(decoder), _closing(consumer):
        with kafka_errors(bootstrap, topics[0]):
            names = [topic for topic in topics if not topic.startswith(_PATTERN)]
            existing = {
                name: partitions_of(consumer, name, bootstrap, partition or ()) for name in names
            }
            if group is not None:
                consumer.subscribe(topics)
            else:
                existing |= _matching(consumer, patterns, bootstrap, partition or ())
                consumer.assign(_start(consumer, existing, partition, offset))
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


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise typer.BadParameter(f"{pattern!r} is not a regular expression: {error}") from None


def _matching(
    consumer: Consumer,
    patterns: Sequence[re.Pattern[str]],
    bootstrap: str,
    required: Sequence[int],
) -> dict[str, set[int]]:
    """The partitions of topics that match; internal topics only by a pattern that begins so."""
    if not patterns:
        return {}
    names = [
        name
        for name in consumer.list_topics(timeout=WAIT_S).topics
        for pattern in patterns
        if pattern.search(name) is not None
        and (not name.startswith(_INTERNAL) or pattern.pattern.startswith(_PATTERN + _INTERNAL))
    ]
    if not names:
        fail(f"no topic matches {', '.join(pattern.pattern for pattern in patterns)}.")
    return {name: partitions_of(consumer, name, bootstrap, required) for name in names}


def _start(
    consumer: Consumer, existing: dict[str, set[int]], partitions: list[int] | None, offset: str
) -> list[TopicPartition]:
    """Where to start in each partition of each topic."""
    return [
        position
        for topic, indexes in sorted(existing.items())
        for position in _positions(consumer, topic, sorted(set(partitions or indexes)), offset)
    ]


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
    ended: set[Partition] = set()
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


def _has_ended(consumer: Consumer, ended: set[Partition]) -> bool:
    """In a group only the partitions of this member count: others read the rest."""
    assigned = {(each.topic, each.partition) for each in consumer.assignment()}
    return assigned <= ended


def _store(consumer: Consumer, batch: list[Message]) -> None:
    """Let the next commit include these, because they were printed."""
    last = {_partition(message): message for message in batch}
    for message in last.values():
        with suppress(KafkaException):  # revoked meanwhile: the next member prints it again
            consumer.store_offsets(message)


def _partition(message: Message) -> Partition:
    topic, index = message.topic(), message.partition()
    assert topic is not None, "a consumed message has a topic"
    assert index is not None, "and a partition"
    return topic, index
