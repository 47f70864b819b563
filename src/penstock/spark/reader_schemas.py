"""The reader schemas of keys and values, found once when a query is created.

`latest` is resolved here: tasks get the schema itself, so every batch of a query has the columns
that Spark knows. Events of schemas that are registered later are resolved to it, without a restart.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.errors import ErrorCode, Refused
from penstock.schemas.model import Reference, SchemaType
from penstock.schemas.rules import RuleMode, blocking_rule, describe_rule
from penstock.serde.contract import Contract, SubjectNames, subject_name
from penstock.serde.errors import UnknownSchemaError
from penstock.serde.frame import Side
from penstock.spark.given_options import config_error
from penstock.spark.read_options import PayloadFormat

if TYPE_CHECKING:
    from penstock.client.registry import Registry

logger: Final = logging.getLogger(__name__)

ANY_TOPIC: Final = ""  # the topic of a schema that was given as text
_TYPES: Final = {
    PayloadFormat.AVRO: SchemaType.AVRO,
    PayloadFormat.PROTOBUF: SchemaType.PROTOBUF,
    PayloadFormat.JSON: SchemaType.JSON,
}


class MissingSchemaError(Refused):
    """The registry has no schema for a topic."""


def topic_subject(topic: str, side: Side) -> str:
    """The subject under which a topic's schemas are looked up."""
    return subject_name(SubjectNames.TOPIC, topic, side, None)


def find_readers(
    registry: "Registry",
    topics: Sequence[str],
    side: Side,
    payload_format: PayloadFormat,
    schema: str,
) -> dict[str, Contract]:
    """A contract for each topic; one for any topic if the schema was given as text."""
    if schema.lower() != "latest" and not schema.isdecimal():
        schema_type = _TYPES.get(payload_format)
        if schema_type is None:
            raise config_error(f"readerSchema is a text: give its type, {side}=avro|protobuf|json")
        return {ANY_TOPIC: Contract(schema=schema, type=schema_type)}
    if not topics:
        raise config_error(
            "no topic matches yet: give readerSchema as text, or create the topic first"
        )
    return {topic: _registered(registry, topic, side, payload_format, schema) for topic in topics}


def _registered(
    registry: "Registry", topic: str, side: Side, payload_format: PayloadFormat, version: str
) -> Contract:
    subject = topic_subject(topic, side)
    try:
        registered = (
            registry.version(subject, int(version))
            if version.isdecimal()
            else registry.latest(subject, fresh=True)  # a new query has the present columns
        )
    except UnknownSchemaError as unknown:
        raise MissingSchemaError(
            ErrorCode.invalid_config,
            f"topic {topic}: {unknown}. Register a schema under {subject}, give readerSchema as"
            f" text, or read it with {side}=raw",
        ) from None
    schema_type = registered.source.type
    if _TYPES.get(payload_format, schema_type) is not schema_type:
        raise config_error(
            f"topic {topic}: subject {subject} is {schema_type}, option {side} is {payload_format}"
        )
    for mode in (RuleMode.READ, RuleMode.UPGRADE):
        rule = blocking_rule(registered.rule_set, mode)
        if rule is not None:
            raise config_error(
                f"topic {topic}: version {registered.version} of {subject} has the rule"
                f" {describe_rule(rule)}, which is not run here. Give readerSchema as text to read"
                f" events of other versions, or read them with {side}=raw"
            )
    source = registered.source
    return Contract(schema=source.text, type=schema_type, references=source.references)


def choose_messages(
    registry: "Registry",
    readers: Mapping[str, Contract],
    message: str | None,
    written: Callable[[str], Sequence[str]],
) -> dict[str, Contract]:
    """The contracts, those of Protobuf with the message of their file that events are read as.

    That is `message` if it is given, else the message of the latest event: `written` returns those
    of a topic, and is called only if a file has several. Without events, the first of the file.
    """
    if message is not None and not any(_is_protobuf(reader) for reader in readers.values()):
        raise config_error(f"option message is {message}, but no schema is Protobuf")
    return {
        topic: replace(contract, message=_message(registry, contract, topic, message, written))
        if _is_protobuf(contract)
        else contract
        for topic, contract in readers.items()
    }


def _is_protobuf(contract: Contract) -> bool:
    return contract.type is SchemaType.PROTOBUF


def _message(
    registry: "Registry",
    contract: Contract,
    topic: str,
    message: str | None,
    written: Callable[[str], Sequence[str]],
) -> str | None:
    from penstock.schemas.protobuf import ProtobufSchema  # its compiler is heavy

    source = contract.source(registry.register_reference)
    assert source is not None, "a reader has a schema"
    schema = registry.parse(source)
    assert isinstance(schema, ProtobufSchema), "by its type"
    names = list(_message_names(schema.file.messages, schema.file.package))
    if message is not None:
        for name in names:
            if message in (name, name.removeprefix(f"{schema.file.package}.")):
                return name
        raise config_error(
            f"option message is {message}, which is not in the schema of"
            f" {topic or 'readerSchema'}; it has {', '.join(names)}"
        )
    if len(names) == 1:
        return None
    recent = written(topic)
    chosen = next((name for name in recent if name in names), None)
    if len(recent) > 1:
        logger.warning(
            "topic %s: its last events are of several messages (%s); it is read as %s, and events"
            " of others are rows with _error. Choose with the option message",
            *(topic, ", ".join(recent), chosen or names[0]),
        )
    return chosen


def _message_names(messages: Sequence[Any], scope: str | None) -> Iterator[str]:
    """Full names, including those of nested messages."""
    for message in messages:
        name = f"{scope}.{message.name}" if scope else message.name
        yield name
        yield from _message_names(message.nested, name)


def reader_of(readers: Mapping[str, Contract], topic: str) -> Contract:
    """The contract of a topic; a topic that was added later is read as the first."""
    return readers.get(topic) or next(iter(readers.values()))


def reader_columns(
    registry: "Registry", readers: Mapping[str, Contract], side: Side, columns: Sequence[str] | None
) -> pa.Schema:
    """What payloads are decoded into; the same for every topic, or Refused."""
    from penstock.serde.batch_serializers import (
        BatchDeserializer,  # compiled kernels: not for every process
    )

    schemas: dict[str, pa.Schema] = {}
    for topic, contract in readers.items():
        try:
            schemas[topic] = BatchDeserializer(
                registry, topic, reader=contract, columns=columns, side=side
            ).arrow_schema()
        except ValueError as error:
            raise config_error(f"topic {topic}: {error}") from None
    first_topic, first = next(iter(schemas.items()))
    for topic, schema in schemas.items():
        if not schema.equals(first):
            raise config_error(
                f"topics {first_topic} and {topic} have different columns: read them separately, or"
                " give readerSchema as text"
            )
    return first


def dump_readers(readers: Mapping[str, Contract]) -> str:
    """As text, to be kept in a query's options."""
    return json.dumps(
        {
            topic: [
                reader.schema,
                str(reader.type),
                [list(reference) for reference in reader.references],
                reader.message,
            ]
            for topic, reader in readers.items()
        }
    )


def load_readers(text: str) -> dict[str, Contract]:
    """What `dump_readers` returned."""
    rows: dict[str, Any] = json.loads(text)
    return {
        topic: Contract(
            schema=schema,
            type=SchemaType(schema_type),
            references=tuple(Reference(*reference) for reference in references),
            message=message,
        )
        for topic, (schema, schema_type, references, message) in rows.items()
    }
