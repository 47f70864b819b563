"""What a query settles on before it runs: its columns, and the schemas that those are of.

Spark asks for the columns in one process and plans in another. What was settled is noted in the
options, which travel with the query: `latest` means one version from its first batch to its last.

What a driver sends to its workers: small frozen things, without the kernels that use them.
"""

import logging
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from penstock.errors import ErrorCode, Refused
from penstock.link.offsets import Isolation
from penstock.serde.contract import Contract
from penstock.serde.frame import Side
from penstock.spark import positions
from penstock.spark import spark_columns as own
from penstock.spark.connections import reached, registry
from penstock.spark.read_options import (
    Coding,
    OnError,
    Partitions,
    ReadOptions,
    Topics,
    read_options,
)
from penstock.spark.reader_schemas import (
    SchemaMissing,
    choose_messages,
    find_readers,
    note_readers,
    noted_readers,
    reader_columns,
    reader_of,
)
from penstock.spark.spark_columns import arrow_schema, spark_type


@dataclass(frozen=True)
class Decoding:
    """What to make of records; small, and fit to be sent to workers."""

    schema: pa.Schema  # of every batch, as Spark expects it
    value: Coding
    key: Coding
    fields: tuple[str, ...]  # of the value: those among the schema's columns
    registry: str | None
    registry_wait_ms: int
    value_readers: Mapping[str, Contract]
    key_readers: Mapping[str, Contract]
    on_error: OnError

    @property
    def own_columns(self) -> frozenset[str]:
        """Which of a record's own columns are asked for."""
        names = (own.own_column(name, self.value) for name in self.schema.names)
        return frozenset(name for name in names if name is not None)

    @property
    def decodes_value(self) -> bool:
        """Whether values must be looked into: for their fields, or for what is wrong with them."""
        if self.value is Coding.RAW:
            return False
        return bool(self.fields) or self._minds_errors

    @property
    def decodes_key(self) -> bool:
        """The same for keys."""
        if self.key is Coding.RAW:
            return False
        return own.KEY in self.own_columns or self._minds_errors

    @property
    def _minds_errors(self) -> bool:
        return self.on_error is OnError.FAIL or own.ERROR in self.own_columns


@dataclass(frozen=True)
class ReadTask:
    """What every task of a read has in common; small, and fit to be sent to workers."""

    kafka: Mapping[str, str]
    isolation: Isolation
    fail_on_data_loss: bool
    decoding: Decoding


logger = logging.getLogger(__name__)

_FIELDS_HINTED: Final = 8
_HINTS_MAX: Final = 64
_NOTES: Final = {Side.VALUE: "noted.value.readers", Side.KEY: "noted.key.readers"}


def read_schema(options: MutableMapping[str, str]) -> StructType:
    """The columns of a read; notes in the options which schemas they are of."""
    asked = read_options(without_notes(options))
    kinds = dict(own.OWN_TYPES)
    fields = own.asked_fields(asked)
    names: Sequence[str] = ()
    if asked.value is not Coding.RAW:
        readers = _found(asked, options, Side.VALUE)
        decoded = _reader_columns(asked, readers, Side.VALUE, fields)
        kinds |= {one.name: one.type for one in decoded if one.name not in kinds}
        names = decoded.names
        if asked.columns is None and not asked.wants_all and len(names) >= _FIELDS_HINTED:
            _hint_columns(", ".join(_topics(asked)), len(names))
    if asked.key is not Coding.RAW:
        readers = _found(asked, options, Side.KEY)
        kinds[own.KEY] = key_type(_reader_columns(asked, readers, Side.KEY, None))
    return StructType(
        [
            StructField(name, spark_type(kinds[own.own_column(name, asked.value) or name]))
            for name in own.column_names(asked, names)
        ]
    )


@lru_cache(maxsize=_HINTS_MAX)  # once for a topic in a process
def _hint_columns(topics: str, fields: int) -> None:
    """Spark does not tell a Python source which columns a query selects."""
    logger.warning(
        "topic %s: all %d fields are decoded and sent to Spark. If the query uses few of them,"
        ' name those: option("columns", "a,b,_timestamp"); "*" says that all are used',
        *(topics, fields),
    )


def read_task(
    options: ReadOptions, given: MutableMapping[str, str], schema: StructType
) -> ReadTask:
    """What workers need. A schema that the user gave must be one that there is."""
    if any(_is_noted(given, side, options) is False for side in Side):
        _check_schema(options, given, schema)
    fields = () if options.value is Coding.RAW else schema.names
    decoding = Decoding(
        schema=arrow_schema(schema),
        value=options.value,
        key=options.key,
        fields=tuple(name for name in fields if own.own_column(name, options.value) is None),
        registry=options.registry,
        registry_wait_ms=options.registry_wait_ms,
        value_readers=_found(options, given, Side.VALUE),
        key_readers=_found(options, given, Side.KEY),
        on_error=options.on_error,
    )
    return ReadTask(options.kafka, options.isolation, options.fail_on_data_loss, decoding)


def value_reader(options: Mapping[str, str], topic: str) -> Contract:
    """The contract that a decoded read of this topic settles on, for who writes the same again."""
    given = dict(options)
    return reader_of(_found(read_options(given), given, Side.VALUE), topic)


def _check_schema(
    options: ReadOptions, given: MutableMapping[str, str], schema: StructType
) -> None:
    known = {one.name: one.dataType for one in read_schema(given)}
    for one in schema:
        if known.get(one.name) != one.dataType:
            told = known.get(one.name)
            what = "unknown" if told is None else told.simpleString()
            raise Refused(
                ErrorCode.invalid_config,
                f"the schema has {one.name} {one.dataType.simpleString()}, which is {what} here:"
                " leave the schema out, and choose with `columns`",
            )


def _coding(options: ReadOptions, side: Side) -> Coding:
    return options.value if side is Side.VALUE else options.key


def _is_noted(given: Mapping[str, str], side: Side, options: ReadOptions) -> bool | None:
    """Whether the schemas of one side are settled; None: it has none."""
    return None if _coding(options, side) is Coding.RAW else _NOTES[side] in given


def _found(
    options: ReadOptions, given: MutableMapping[str, str], side: Side
) -> dict[str, Contract]:
    """The schemas of one side: as noted, or found now and noted."""
    coding = _coding(options, side)
    if coding is Coding.RAW:
        return {}
    if _NOTES[side] not in given:
        assert options.registry is not None, "checked with the options"
        told = options.reader_schema if side is Side.VALUE else options.key_reader_schema
        topics = _topics(options)
        try:
            readers = find_readers(registry(options.registry), topics, side, coding, told)
        except SchemaMissing:
            positions.check_exist(reached(options.kafka), topics)  # a misspelt name has none either
            raise
        message = options.message if side is Side.VALUE else options.key_message
        readers = choose_messages(
            registry(options.registry),
            readers,
            message,
            lambda topic: _written(options, side, [topic] if topic else topics[:1]),
        )
        given[_NOTES[side]] = note_readers(readers)
    noted = noted_readers(given[_NOTES[side]])
    return {
        topic: replace(one, assert_formats=options.assert_formats) for topic, one in noted.items()
    }


def _written(options: ReadOptions, side: Side, topics: Sequence[str]) -> list[str]:
    from penstock.spark.written_messages import written_messages  # only Protobuf needs it

    assert options.registry is not None, "checked with the options"
    client, brokers = registry(options.registry), reached(options.kafka)
    return [
        name
        for topic in topics
        for name in written_messages(brokers, client, topic, side, options.isolation)
    ]


def _topics(options: ReadOptions) -> list[str]:
    match options.selection:
        case Topics(names):
            return list(names)
        case Partitions(partitions):
            return list(dict.fromkeys(one.topic for one in partitions))
        case pattern:
            chosen = positions.selected(reached(options.kafka), pattern)
            return list(dict.fromkeys(one.topic for one in chosen))


def _reader_columns(
    options: ReadOptions, readers: Mapping[str, Contract], side: Side, fields: Sequence[str] | None
) -> pa.Schema:
    assert options.registry is not None, "checked with the options"
    return reader_columns(registry(options.registry), readers, side, fields)


def key_type(decoded: pa.Schema) -> pa.DataType:
    """A record is a struct; anything else is itself."""
    if decoded.names == ["value"]:
        only: pa.DataType = decoded.field(0).type
        return only
    return pa.struct(list(decoded))


def without_notes(options: Mapping[str, str]) -> dict[str, str]:
    return {name: told for name, told in options.items() if name not in _NOTES.values()}
