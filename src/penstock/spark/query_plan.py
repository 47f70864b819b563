"""What a query decides before it runs: its columns, and the reader schemas that they come from.

Spark requests the columns in one process and plans in another. The decision is noted in the
options, which travel with the query, so that `latest` means one version from its first batch to its
last.
"""

import logging
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from penstock.errors import ErrorCode, Refused
from penstock.serde.contract import Contract
from penstock.serde.frame import Side
from penstock.spark import positions
from penstock.spark import source_columns as columns
from penstock.spark.connections import connected_cluster, registry_client
from penstock.spark.read_options import (
    PartitionSelection,
    PayloadFormat,
    ReadOptions,
    TopicSelection,
    read_options,
)
from penstock.spark.read_plan import DecodePlan, ReadPlan
from penstock.spark.reader_schemas import (
    MissingSchemaError,
    choose_messages,
    dump_readers,
    find_readers,
    load_readers,
    reader_columns,
    reader_of,
)
from penstock.spark.spark_types import arrow_schema, spark_type

logger: Final = logging.getLogger(__name__)

_FIELDS_HINTED: Final = 8
_HINTS_MAX: Final = 64
_NOTES: Final = {Side.VALUE: "noted.value.readers", Side.KEY: "noted.key.readers"}


def read_schema(options: MutableMapping[str, str]) -> StructType:
    """The columns of a read; notes in the options which reader schemas they come from."""
    checked = read_options(without_notes(options))
    types = dict(columns.RECORD_COLUMNS)
    fields = columns.requested_fields(checked)
    names: Sequence[str] = ()
    if checked.value is not PayloadFormat.RAW:
        readers = _readers(checked, options, Side.VALUE)
        decoded = _reader_columns(checked, readers, Side.VALUE, fields)
        types |= {field.name: field.type for field in decoded if field.name not in types}
        names = decoded.names
        if (
            checked.columns is None
            and not checked.all_columns_requested
            and len(names) >= _FIELDS_HINTED
        ):
            _hint_columns(", ".join(_topics(checked)), len(names))
    if checked.key is not PayloadFormat.RAW:
        readers = _readers(checked, options, Side.KEY)
        decoded = _reader_columns(checked, readers, Side.KEY, None)
        types[columns.KEY] = columns.single_column_type(decoded)
    return StructType(
        [
            StructField(name, spark_type(types[columns.record_column(name, checked.value) or name]))
            for name in columns.column_names(checked, names)
        ]
    )


@lru_cache(maxsize=_HINTS_MAX)  # once per topic and process
def _hint_columns(topics: str, fields: int) -> None:
    """Spark does not pass the columns that a query selects to a Python source."""
    logger.warning(
        "topic %s: all %d fields are decoded and sent to Spark. If the query uses few of them,"
        ' name those: option("columns", "a,b,_timestamp"); "*" says that all are used',
        *(topics, fields),
    )


def plan_read(
    options: ReadOptions, given: MutableMapping[str, str], schema: StructType
) -> ReadPlan:
    """What workers need. A schema that the user gave must be that of the topic."""
    if any(_is_noted(given, side, options) is False for side in Side):
        _check_schema(given, schema)
    fields = () if options.value is PayloadFormat.RAW else schema.names
    decode = DecodePlan(
        schema=arrow_schema(schema),
        value=options.value,
        key=options.key,
        fields=tuple(name for name in fields if columns.record_column(name, options.value) is None),
        registry=options.registry,
        registry_wait_ms=options.registry_wait_ms,
        value_readers=_readers(options, given, Side.VALUE),
        key_readers=_readers(options, given, Side.KEY),
        on_error=options.on_error,
    )
    return ReadPlan(options.kafka, options.isolation, options.fail_on_data_loss, decode)


def value_reader(options: Mapping[str, str], topic: str) -> Contract:
    """The contract that a decoded read of this topic uses, to write the same events again."""
    given = dict(options)
    return reader_of(_readers(read_options(given), given, Side.VALUE), topic)


def _check_schema(given: MutableMapping[str, str], schema: StructType) -> None:
    types = {field.name: field.dataType for field in read_schema(given)}
    for field in schema:
        expected = types.get(field.name)
        if expected != field.dataType:
            description = "unknown" if expected is None else expected.simpleString()
            raise Refused(
                ErrorCode.invalid_config,
                f"the schema has {field.name} {field.dataType.simpleString()}, which is"
                f" {description} here: leave the schema out, and choose with `columns`",
            )


def _format(options: ReadOptions, side: Side) -> PayloadFormat:
    return options.value if side is Side.VALUE else options.key


def _is_noted(given: Mapping[str, str], side: Side, options: ReadOptions) -> bool | None:
    """Whether the reader schemas of keys or values are decided; None: they are raw."""
    return None if _format(options, side) is PayloadFormat.RAW else _NOTES[side] in given


def _readers(
    options: ReadOptions, given: MutableMapping[str, str], side: Side
) -> dict[str, Contract]:
    """The reader schemas of keys or values: as noted, or found now and noted."""
    if _format(options, side) is PayloadFormat.RAW:
        return {}
    if _NOTES[side] not in given:
        given[_NOTES[side]] = dump_readers(_find_readers(options, side))
    readers = load_readers(given[_NOTES[side]])
    return {
        topic: replace(reader, assert_formats=options.assert_formats)
        for topic, reader in readers.items()
    }


def _find_readers(options: ReadOptions, side: Side) -> dict[str, Contract]:
    assert options.registry is not None, "checked with the options"
    client = registry_client(options.registry)
    schema = options.reader_schema if side is Side.VALUE else options.key_reader_schema
    topics = _topics(options)
    try:
        readers = find_readers(client, topics, side, _format(options, side), schema)
    except MissingSchemaError:
        # A topic whose name is misspelt has no schema either: name that as the cause.
        positions.check_topics_exist(connected_cluster(options.kafka), topics)
        raise
    message = options.message if side is Side.VALUE else options.key_message
    return choose_messages(
        client,
        readers,
        message,
        lambda topic: _written_messages(options, side, [topic] if topic else topics[:1]),
    )


def _written_messages(options: ReadOptions, side: Side, topics: Sequence[str]) -> list[str]:
    from penstock.spark.written_messages import written_messages  # only Protobuf needs it

    assert options.registry is not None, "checked with the options"
    client, cluster = registry_client(options.registry), connected_cluster(options.kafka)
    return [
        name
        for topic in topics
        for name in written_messages(cluster, client, topic, side, options.isolation)
    ]


def _topics(options: ReadOptions) -> list[str]:
    match options.selection:
        case TopicSelection(names):
            return list(names)
        case PartitionSelection(partitions):
            return list(dict.fromkeys(partition.topic for partition in partitions))
        case pattern:
            cluster = connected_cluster(options.kafka)
            partitions = tuple(positions.select_partitions(cluster, pattern))
            return list(dict.fromkeys(partition.topic for partition in partitions))


def _reader_columns(
    options: ReadOptions, readers: Mapping[str, Contract], side: Side, fields: Sequence[str] | None
) -> pa.Schema:
    assert options.registry is not None, "checked with the options"
    return reader_columns(registry_client(options.registry), readers, side, fields)


def without_notes(options: Mapping[str, str]) -> dict[str, str]:
    """The options as the user gave them."""
    return {name: text for name, text in options.items() if name not in _NOTES.values()}
