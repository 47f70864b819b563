"""`penstock frame …`: explain the bytes of a record."""

import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from confluent_kafka import Consumer, KafkaError, TopicPartition

from penstock.cli.connect import (
    WAIT_S,
    check_reachable,
    kafka_errors,
    partitions_of,
    quiet_client,
)
from penstock.cli.error_output import fail
from penstock.cli.options import LOCAL_BOOTSTRAP, REGISTRY, AsJson, Bootstrap
from penstock.cli.output import show_json
from penstock.cli.value_format import json_value
from penstock.client.registry import Registry
from penstock.schemas.model import SchemaType
from penstock.serde.annotate import annotate, hexdump
from penstock.serde.errors import ClientError
from penstock.serde.frame import BadFrameError, Headers, Side, read_frame
from penstock.serde.serializers import Deserializer

app: Final = typer.Typer(no_args_is_help=True, help="Explain the frames of events.")


@app.callback()
def _commands() -> None:
    """Explain the frames of events."""


@app.command()
def decode(
    source: Annotated[
        str,
        typer.Argument(help="topic:partition:offset, a file, hex, or - for standard input."),
    ] = "-",
    registry: Annotated[
        str | None,
        typer.Option(
            "--registry",
            "-r",
            envvar=REGISTRY,
            help="Registry to look the schema up in.",
        ),
    ] = None,
    key: Annotated[
        bool, typer.Option("--key", "-k", help="Decode the key instead of the value.")
    ] = False,
    schema_type: Annotated[
        SchemaType | None,
        typer.Option("--type", "-t", help="Type of the schema, without --registry."),
    ] = None,
    bootstrap: Bootstrap = LOCAL_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Print the bytes of a record with their meaning: magic byte, schema, indexes, payload."""
    side = Side.KEY if key else Side.VALUE
    content, headers = _read(source, side, bootstrap)
    if content is None:
        fail(f"the {side} is null: it has no frame")
    schema = {} if registry is None else _look_up(registry, content, headers, side)
    language = SchemaType(schema["type"]) if "type" in schema else schema_type
    parts = annotate(content, headers, side, language)
    if as_json:
        rows = [{**part._asdict(), "content": part.content.hex()} for part in parts]
        show_json({"parts": rows, **schema})
        return
    for line in hexdump(parts):
        typer.echo(line)
    for name, value in schema.items():
        typer.echo(f"{name}: {value}")


def _look_up(url: str, content: bytes, headers: Headers, side: Side) -> dict[str, Any]:
    """The schema, and the decoded value."""
    with Registry(url, client="penstock frame", attempts=1) as registry:
        try:
            known = registry.schema(read_frame(content, headers, side).schema)
        except BadFrameError:
            return {}
        except ClientError as failure:
            return {"schema": str(failure)}
        schema: dict[str, Any] = {"type": str(known.parsed.type), "name": known.parsed.name}
        deserializer = Deserializer(registry, "record", side=side, as_dicts=True)
        try:
            schema["decoded"] = json_value(deserializer.deserialize(content, headers))
        except ClientError as failure:
            schema["undecodable"] = str(failure)
        return schema


def _read(source: str, side: Side, bootstrap: str) -> tuple[bytes | None, Headers]:
    if source == "-":
        return _from_hex(sys.stdin.buffer.read()), ()
    if source.count(":") == 2 and not Path(source).exists():
        topic, partition, offset = source.split(":")
        has_numbers = partition.isdecimal() and offset.isdecimal()
        if not has_numbers or max(int(partition) >> 31, int(offset) >> 63):
            raise typer.BadParameter(f"{source!r} is not topic:partition:offset")
        return _fetch(TopicPartition(topic, int(partition), int(offset)), side, bootstrap)
    path = Path(source)
    if path.is_file():
        return path.read_bytes(), ()
    try:
        return bytes.fromhex(source), ()
    except ValueError:
        raise typer.BadParameter(
            f"{source!r} is neither topic:partition:offset, nor a file, nor hex"
        ) from None


def _from_hex(piped: bytes) -> bytes:
    """Standard input: hex if all of it is, raw bytes otherwise."""
    try:
        return bytes.fromhex(piped.decode("ascii"))
    except ValueError:
        return piped


def _fetch(position: TopicPartition, side: Side, bootstrap: str) -> tuple[bytes | None, Headers]:
    check_reachable(bootstrap)
    consumer = Consumer(
        quiet_client(
            bootstrap,
            {
                "group.id": "penstock-frame",
                "enable.auto.commit": False,  # reading here is not consuming
                "enable.partition.eof": True,
            },
        )
    )
    try:
        with kafka_errors(bootstrap, position.topic):
            partitions_of(consumer, position.topic, bootstrap, [position.partition])
            consumer.assign([position])
            message = consumer.poll(WAIT_S)
    finally:
        consumer.close()
    error = None if message is None else message.error()
    is_end = error is not None and error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001 - librdkafka's name for it
    if message is None or is_end or (error is None and message.offset() != position.offset):
        fail(f"no record at {position.topic}:{position.partition}:{position.offset}")
    if error is not None:
        fail(error.str())
    headers: Any = message.headers() or ()
    return (message.key() if side is Side.KEY else message.value()), headers
