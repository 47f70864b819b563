"""`penstock frame`: what the bytes of one record mean."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from confluent_kafka import Consumer, KafkaError, TopicPartition

from penstock.cli.connect import (
    LOCAL,
    WAIT_S,
    Bootstrap,
    check_reachable,
    fail,
    partitions_of,
    quiet_client,
    telling,
)
from penstock.cli.output import AsJson, show_json
from penstock.client.registry import Registry
from penstock.schemas.model import SchemaType
from penstock.serde.annotate import annotate, hexdump
from penstock.serde.errors import ClientError
from penstock.serde.frame import BadFrame, Headers, Side, read_frame
from penstock.serde.serializers import Deserializer

app = typer.Typer(no_args_is_help=True, help="Look into the frames that events are written in.")


@app.callback()
def _family() -> None:
    """Look into the frames that events are written in."""


@app.command()
def decode(
    source: Annotated[
        str,
        typer.Argument(help="topic:partition:offset, a file, bytes in hex, or - for stdin."),
    ] = "-",
    registry: Annotated[
        str | None,
        typer.Option(
            "--registry", "-r", envvar="PENSTOCK_REGISTRY", help="Ask there what the schema is."
        ),
    ] = None,
    key: Annotated[bool, typer.Option("--key", "-k", help="The key instead of the value.")] = False,
    schema_type: Annotated[
        SchemaType | None, typer.Option("--type", "-t", help="The schema's type, if known.")
    ] = None,
    bootstrap: Bootstrap = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Print one record's bytes with what they mean: magic, schema, indexes, payload."""
    side = Side.KEY if key else Side.VALUE
    content, headers = _read(source, side, bootstrap)
    if content is None:
        fail(f"the {side} is null: it has no frame")
    told = _ask(registry, content, headers, side) if registry is not None else {}
    kind = SchemaType(told["type"]) if "type" in told else schema_type
    parts = annotate(content, headers, side, kind)
    if as_json:
        rows = [{**part._asdict(), "content": part.content.hex()} for part in parts]
        show_json({"parts": rows, **told})
        return
    for line in hexdump(parts):
        typer.echo(line)
    for name, said in told.items():
        typer.echo(f"{name}: {said}")


def _ask(url: str, content: bytes, headers: Headers, side: Side) -> dict[str, Any]:
    """What the registry and the schema say of it."""
    with Registry(url, client="penstock frame", attempts=1) as registry:
        try:
            known = registry.schema(read_frame(content, headers, side).schema)
        except BadFrame:
            return {}
        except ClientError as failure:
            return {"schema": str(failure)}
        told: dict[str, Any] = {"type": str(known.parsed.type), "name": known.parsed.name}
        read = Deserializer(registry, "record", side=side, as_dicts=True)
        try:
            told["decoded"] = _plain(read.deserialize(content, headers))
        except ClientError as failure:
            told["undecodable"] = str(failure)
        return told


def _plain(value: Any) -> Any:
    """As JSON can show it."""
    match value:
        case dict():
            return {str(name): _plain(inner) for name, inner in value.items()}
        case list():
            return [_plain(inner) for inner in value]
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return value.hex()
        case other:
            return str(other)


def _read(source: str, side: Side, bootstrap: str) -> tuple[bytes | None, Headers]:
    if source == "-":
        return _bytes(sys.stdin.buffer.read()), ()
    if source.count(":") == 2 and not Path(source).exists():
        topic, partition, offset = source.split(":")
        numbers = partition.isdecimal() and offset.isdecimal()
        if not numbers or max(int(partition) >> 31, int(offset) >> 63):
            raise typer.BadParameter(f"{source!r} is not topic:partition:offset")
        return _fetch(TopicPartition(topic, int(partition), int(offset)), side, bootstrap)
    path = Path(source)
    if path.is_file():
        return path.read_bytes(), ()
    try:
        return bytes.fromhex(source), ()
    except ValueError:
        raise typer.BadParameter(
            f"{source!r} is no topic:partition:offset, no file and no hex"
        ) from None


def _bytes(piped: bytes) -> bytes:
    """What was piped in: hex if it is nothing else, raw otherwise."""
    try:
        return bytes.fromhex(piped.decode("ascii"))
    except ValueError:
        return piped


def _fetch(place: TopicPartition, side: Side, bootstrap: str) -> tuple[bytes | None, Headers]:
    check_reachable(bootstrap)
    consumer = Consumer(
        quiet_client(
            bootstrap,
            {
                "group.id": "penstock-frame",
                "enable.auto.commit": False,  # to look is not to consume
                "enable.partition.eof": True,
            },
        )
    )
    try:
        with telling(bootstrap, place.topic):
            partitions_of(consumer, place.topic, bootstrap, [place.partition])
            consumer.assign([place])
            message = consumer.poll(WAIT_S)
    finally:
        consumer.close()
    error = None if message is None else message.error()
    is_end = error is not None and error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001 - librdkafka's name for it
    if message is None or is_end or (error is None and message.offset() != place.offset):
        fail(f"there is no record at {place.topic}:{place.partition}:{place.offset}")
    if error is not None:
        fail(error.str())
    headers: Any = message.headers() or ()
    return (message.key() if side is Side.KEY else message.value()), headers
