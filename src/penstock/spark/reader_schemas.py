"""The schemas that keys and values are seen through, found once when a query is made.

`latest` is settled here: tasks get the schema itself, so every batch of a query has the columns
that Spark was told. What writers register later is resolved to it, without a restart.
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
from penstock.spark.read_options import Coding

if TYPE_CHECKING:
    from penstock.client.registry import Registry

logger = logging.getLogger(__name__)

ANY_TOPIC: Final = ""  # of a schema that was given as text
_TYPES: Final = {
    Coding.AVRO: SchemaType.AVRO,
    Coding.PROTOBUF: SchemaType.PROTOBUF,
    Coding.JSON: SchemaType.JSON,
}


class SchemaMissing(Refused):
    """The registry has no schema for a topic."""


def find_readers(
    registry: "Registry", topics: Sequence[str], side: Side, coding: Coding, told: str
) -> dict[str, Contract]:
    """A contract for each topic; for any topic where the schema was given as text."""
    if told.lower() != "latest" and not told.isdecimal():
        kind = _TYPES.get(coding)
        if kind is None:
            raise _refused(f"readerSchema is a text: say what it is, {side}=avro|protobuf|json")
        return {ANY_TOPIC: Contract(schema=told, type=kind)}
    if not topics:
        raise _refused("no topic matches yet: give readerSchema as text, or make the topic first")
    return {topic: _registered(registry, topic, side, coding, told) for topic in topics}


def _registered(
    registry: "Registry", topic: str, side: Side, coding: Coding, told: str
) -> Contract:
    subject = subject_name(SubjectNames.TOPIC, topic, side, None)
    try:
        known = (
            registry.version(subject, int(told))
            if told.isdecimal()
            else registry.latest(subject, fresh=True)  # a new query has the columns of now
        )
    except UnknownSchemaError as unknown:
        raise SchemaMissing(
            ErrorCode.invalid_config,
            f"topic {topic}: {unknown}. Register a schema under {subject}, give readerSchema as"
            f" text, or read it with {side}=raw",
        ) from None
    kind = known.source.type
    if _TYPES.get(coding, kind) is not kind:
        raise _refused(f"topic {topic}: subject {subject} is {kind}, option {side} says {coding}")
    for mode in (RuleMode.READ, RuleMode.UPGRADE):
        rule = blocking_rule(known.rule_set, mode)
        if rule is not None:
            raise _refused(
                f"topic {topic}: version {known.version} of {subject} has the rule"
                f" {describe_rule(rule)}, which is not run here. Give readerSchema as text to read"
                f" events of other versions, or read them with {side}=raw"
            )
    return Contract(schema=known.source.text, type=kind, references=known.source.references)


def choose_messages(
    registry: "Registry",
    readers: Mapping[str, Contract],
    message: str | None,
    written: Callable[[str], Sequence[str]],
) -> dict[str, Contract]:
    """The contracts, those of Protobuf with the message of their file that events are read as.

    That is `message` where it is given. Else it is the message that was written last: `written`
    finds those of a topic, and is called only where a file has several. The first of the file where
    nothing was written.
    """
    if message is not None and not any(_is_protobuf(one) for one in readers.values()):
        raise _refused(f"option message is {message}, but no schema is Protobuf")
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

    source = contract.source(registry.refer)
    assert source is not None, "a reader has a schema"
    schema = registry.understand(source)
    assert isinstance(schema, ProtobufSchema), "the type says so"
    names = list(_message_names(schema.file.messages, schema.file.package))
    if message is not None:
        for name in names:
            if message in (name, name.removeprefix(f"{schema.file.package}.")):
                return name
        raise _refused(
            f"option message is {message}, which the schema of {topic or 'readerSchema'} has not;"
            f" it has {', '.join(names)}"
        )
    if len(names) == 1:
        return None
    found = written(topic)
    chosen = next((name for name in found if name in names), None)
    if len(found) > 1:
        logger.warning(
            "topic %s: its last events are of several messages (%s); it is read as %s, and events"
            " of others are rows with _error. Choose with the option message",
            *(topic, ", ".join(found), chosen or names[0]),
        )
    return chosen


def _message_names(messages: Sequence[Any], scope: str | None) -> Iterator[str]:
    """Full names, those of nested messages too."""
    for one in messages:
        name = f"{scope}.{one.name}" if scope else one.name
        yield name
        yield from _message_names(one.nested, name)


def reader_of(readers: Mapping[str, Contract], topic: str) -> Contract:
    """The contract of a topic; one that came later is read as the first."""
    return readers.get(topic) or next(iter(readers.values()))


def reader_columns(
    registry: "Registry", readers: Mapping[str, Contract], side: Side, columns: Sequence[str] | None
) -> pa.Schema:
    """What values are decoded into; the same for every topic, or Refused."""
    from penstock.serde.batch_serializers import (
        BatchDeserializer,  # compiled kernels: not for every process
    )

    found: dict[str, pa.Schema] = {}
    for topic, contract in readers.items():
        try:
            known = BatchDeserializer(
                registry, topic, reader=contract, columns=columns, side=side
            ).arrow_schema()
        except ValueError as wrong:
            raise _refused(f"topic {topic}: {wrong}") from None
        found[topic] = known
    first_topic, first = next(iter(found.items()))
    for topic, schema in found.items():
        if not schema.equals(first):
            raise _refused(
                f"topics {first_topic} and {topic} have different columns: read them apart, or give"
                " readerSchema as text"
            )
    return first


def note_readers(readers: Mapping[str, Contract]) -> str:
    """As text, to be kept with a query's options."""
    return json.dumps(
        {
            topic: [
                one.schema,
                str(one.type),
                [list(reference) for reference in one.references],
                one.message,
            ]
            for topic, one in readers.items()
        }
    )


def noted_readers(noted: str) -> dict[str, Contract]:
    """What `note_readers` wrote."""
    rows: dict[str, Any] = json.loads(noted)
    return {
        topic: Contract(
            schema=text,
            type=SchemaType(kind),
            references=tuple(Reference(*one) for one in references),
            message=message,
        )
        for topic, (text, kind, references, message) in rows.items()
    }


def _refused(why: str) -> Refused:
    return Refused(ErrorCode.invalid_config, why)
