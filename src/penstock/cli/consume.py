"""`penstock consume`: messages become lines of standard output."""

import base64
import re
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final
from uuid import uuid4

import typer
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from penstock.cli.reaching import (
    LOCAL,
    WAIT_S,
    AsJson,
    Bootstrap,
    check_reachable,
    client_settings,
    show_json,
    tell,
    telling,
)

_START: Final = -2
_END: Final = -1
_FIELD: Final = re.compile(rb"%([a-zA-Z%])")
_BATCH: Final = 500


def consume(
    topic: Annotated[str, typer.Argument()],
    offset: Annotated[
        str,
        typer.Option("--offset", "-o", help="start, end, N, -N (the last N) or @T (milliseconds)."),
    ] = "start",
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Only these.")
    ] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", help="Stop after so many.")] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit", "-e", help="Stop at the end of every partition.")
    ] = False,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="As a member of a group, with commits.")
    ] = None,
    format_text: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            help="%t topic, %p partition, %o offset, %T timestamp, %k key, %v value, %h headers.",
        ),
    ] = "%v\\n",
    bootstrap: Bootstrap = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Print messages, from the start and on until Ctrl-C unless told otherwise."""
    check_reachable(bootstrap)
    show = _show_json if as_json else _shower(format_text)
    consumer = Consumer(
        client_settings(
            bootstrap,
            group_id=group or f"penstock-consume-{uuid4().hex}",
            auto_offset_reset="earliest" if offset == "start" else "latest",
            enable_auto_commit=group is not None,
            enable_partition_eof=True,
        )
    )
    try:
        ends_awaited = _begin(consumer, topic, offset, partition, group, bootstrap)
        for message in _messages(consumer, ends_awaited if exit_at_end else None, bootstrap, count):
            show(message)
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:  # `| head` has seen enough
        sys.stderr.close()
    finally:
        consumer.close()


def _begin(
    consumer: Consumer,
    topic: str,
    offset: str,
    partitions: list[int] | None,
    group: str | None,
    bootstrap: str,
) -> set[int]:
    """Start reading; the partitions that will be read."""
    with telling(bootstrap, topic):
        found = consumer.list_topics(topic, timeout=WAIT_S / 2).topics[topic]
        if found.error is not None:
            tell(found.error, bootstrap, topic)
        known = set(found.partitions)
        missing = set(partitions or ()) - known
        if missing:
            raise typer.BadParameter(f"{topic} has no partition {min(missing)}")
        if group is not None:
            consumer.subscribe([topic])
            return known
        wanted = sorted(partitions or known)
        consumer.assign(_places(consumer, topic, wanted, offset))
    return set(wanted)


def _places(
    consumer: Consumer, topic: str, partitions: list[int], offset: str
) -> list[TopicPartition]:
    """Where to begin in each partition."""
    if offset in ("start", "beginning", "end"):
        at = _END if offset == "end" else _START
        return [TopicPartition(topic, index, at) for index in partitions]
    if offset.startswith("@"):
        asked = [TopicPartition(topic, index, _number(offset[1:])) for index in partitions]
        return list(consumer.offsets_for_times(asked, timeout=WAIT_S))
    number = _number(offset)
    if number >= 0:
        return [TopicPartition(topic, index, number) for index in partitions]
    places = []
    for index in partitions:
        place = TopicPartition(topic, index)
        start, end = consumer.get_watermark_offsets(place, timeout=WAIT_S)
        places.append(TopicPartition(topic, index, max(start, end + number)))
    return places


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r}: say start, end, N, -N or @milliseconds") from None


def _messages(
    consumer: Consumer, ends_awaited: set[int] | None, bootstrap: str, count: int | None
) -> Iterator[Message]:
    """Messages as they come, until enough were seen or every awaited partition has ended."""
    seen = 0
    while (count is None or seen < count) and ends_awaited != set():
        left = _BATCH if count is None else min(_BATCH, count - seen)
        for message in consumer.consume(left, timeout=0.2):
            error = message.error()
            if error is None:
                seen += 1
                yield message
                if ends_awaited is not None:
                    ends_awaited.add(_partition(message))
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name for it
                if ends_awaited is not None:
                    ends_awaited.discard(_partition(message))
            elif error.fatal() or not error.retriable():
                tell(error, bootstrap, message.topic())
        sys.stdout.flush()


def _shower(format_text: str) -> Callable[[Message], None]:
    pattern = format_text.encode().decode("unicode_escape").encode("latin-1")
    write = sys.stdout.buffer.write

    def show(message: Message) -> None:
        write(_FIELD.sub(lambda found: _field(message, found[1]), pattern))

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
        case b"%":
            return b"%"
        case _:
            return b"%" + letter


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
    assert index is not None, "what was consumed has a partition"
    return index


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    return message.headers() or []  # type: ignore[return-value]  # what is consumed is bytes


def _readable(content: bytes | None) -> Any:
    """Text as it is, other bytes in base64."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
