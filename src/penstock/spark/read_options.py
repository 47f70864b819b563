"""The options of `spark.read.format("penstock")`, checked.

Every option is a row of `option_rows`; any other is refused, because an option that is silently
ignored is hard to notice. Makes no request: topic names and versions are taken as given.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

from penstock.errors import ErrorCode, Refused
from penstock.link.offsets import Isolation
from penstock.model import Millis, TopicPartition
from penstock.spark.connections import BOOTSTRAP, CREATE_TABLE_HINT, kafka_properties
from penstock.spark.given_options import GivenOptions, option_error
from penstock.spark.option_rows import SOURCE_OPTIONS

EARLIEST_OFFSET: Final = -2  # in a JSON of offsets, as in Spark's source
LATEST_OFFSET: Final = -1
ALL_COLUMNS: Final = "*"
REGISTRY_WAIT_MS: Final = 30_000
_IGNORED: Final = frozenset(  # options of Spark's source that have no meaning here
    {
        "path",
        "groupidprefix",
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
        "kafkaconsumer.polltimeoutms",
        BOOTSTRAP,
    }
)
_OF_CREATE_TABLE: Final = "provider"  # what Spark passes instead of the options
_OFFSETS_EXAMPLE: Final = '{"orders": {"0": 23, "1": -2}}'
_STREAM_ENDS: Final = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
_OF_STREAMS: Final = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "tracing")
_GROUP_CHARACTERS_MAX: Final = 249


class PayloadFormat(StrEnum):
    """How the bytes of a key or value are encoded."""

    RAW = "raw"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    JSON = "json"
    AUTO = "auto"  # the type that the registry has for the subject


class OnError(StrEnum):
    """What to do with a record that cannot be decoded."""

    QUARANTINE = "quarantine"
    FAIL = "fail"
    NULL = "null"


class LogEnd(StrEnum):
    """An end of a log by name."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition; -2 and -1 mean its start and end."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The first record at or after a time: one for each partition, or one for all."""

    times: Mapping[TopicPartition, Millis] | Millis
    latest_if_none: bool


Bound: TypeAlias = LogEnd | AtOffsets | AtTimes


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """Topics by name."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PatternSelection:
    """Every topic whose whole name matches."""

    expression: str


@dataclass(frozen=True, slots=True)
class PartitionSelection:
    """Single partitions."""

    partitions: tuple[TopicPartition, ...]


Selection: TypeAlias = TopicSelection | PatternSelection | PartitionSelection


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read, checked."""

    kafka: Mapping[str, str]
    selection: Selection
    starting: Bound | None  # None: the default of a batch or of a stream
    ending: Bound
    isolation: Isolation
    fail_on_data_loss: bool
    include_headers: bool
    offsets_per_trigger_max: int | None
    bytes_per_trigger_max: int | None
    partitions_min: int | None
    records_per_partition_max: int | None
    registry: str | None
    value: PayloadFormat
    key: PayloadFormat
    reader_schema: str
    key_reader_schema: str
    assert_formats: bool
    message: str | None
    key_message: str | None
    columns: tuple[str, ...] | None
    all_columns_requested: bool  # explicitly, by `*`
    on_error: OnError
    registry_wait_ms: int
    group: str | None
    tracing: str | None


def read_options(options: Mapping[str, str], *, is_stream: bool | None = None) -> ReadOptions:
    """The options, checked; Refused names the invalid one and its valid values.

    Options for streams only, or for batches only, are refused once it is known which this is.
    """
    given = GivenOptions(options)
    if given.text(_OF_CREATE_TABLE) is not None:
        raise Refused(ErrorCode.invalid_config, CREATE_TABLE_HINT)
    given.refuse_unknown(SOURCE_OPTIONS, _IGNORED)
    if is_stream is not None:
        given.refuse_present(
            _STREAM_ENDS if is_stream else _OF_STREAMS, "a stream" if is_stream else "a batch"
        )
    kafka = kafka_properties(options)
    selection = _selection(given)
    registry = given.text("registry")
    default_format = PayloadFormat.AUTO if registry else PayloadFormat.RAW
    value = given.choice("value", PayloadFormat) or default_format
    key = given.choice("key", PayloadFormat) or PayloadFormat.RAW
    if registry is None and not value is key is PayloadFormat.RAW:
        raise option_error("registry", "is missing: give its address, as http://host:port")
    all_columns_requested = given.text("columns") == ALL_COLUMNS
    columns = None if all_columns_requested else given.names("columns")
    return ReadOptions(
        kafka=kafka,
        selection=selection,
        starting=_bound(given, "starting"),
        ending=_bound(given, "ending") or LogEnd.LATEST,
        isolation=_isolation(given, kafka),
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        include_headers=given.flag("includeHeaders", default=False),
        offsets_per_trigger_max=given.count("maxOffsetsPerTrigger"),
        bytes_per_trigger_max=given.count("maxBytesPerTrigger"),
        partitions_min=given.count("minPartitions"),
        records_per_partition_max=given.count("maxRecordsPerPartition"),
        registry=registry,
        value=value,
        key=key,
        reader_schema=given.text("readerSchema") or "latest",
        key_reader_schema=given.text("keyReaderSchema") or "latest",
        assert_formats=given.flag("assertFormats", default=False),
        message=given.text("message"),
        key_message=given.text("keyMessage"),
        columns=columns,
        all_columns_requested=all_columns_requested,
        on_error=_on_error(given, columns),
        registry_wait_ms=given.count("registryWaitMs") or REGISTRY_WAIT_MS,
        group=_group(given, kafka, selection),
        tracing=given.text("tracing"),
    )


def _selection(given: GivenOptions) -> Selection:
    present = [name for name in ("subscribe", "subscribePattern", "assign") if given.text(name)]
    if len(present) != 1:
        raise option_error(
            "subscribe",
            f"or subscribePattern or assign: exactly one is required, not {len(present)}",
        )
    if present == ["subscribe"]:
        return TopicSelection(given.names("subscribe") or ())
    if present == ["assign"]:
        return PartitionSelection(_assigned(given))
    expression = given.text("subscribePattern") or ""
    try:
        re.compile(expression)
    except re.error as error:
        raise option_error("subscribePattern", f"is not a regular expression: {error}") from None
    return PatternSelection(expression)


def _assigned(given: GivenOptions) -> tuple[TopicPartition, ...]:
    partitions = []
    for topic, indexes in given.json("assign").items():
        if not isinstance(indexes, list) or not all(_is_index(index) for index in indexes):
            raise option_error("assign", f"has no list of partitions for topic {topic}")
        partitions += [TopicPartition(topic, index) for index in sorted(set(indexes))]
    if not partitions:
        raise option_error("assign", "names no partition")
    return tuple(partitions)


def _is_index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _bound(given: GivenOptions, end: str) -> Bound | None:
    """`...Timestamp` overrides `...ByTimestamp`, which overrides `...Offsets`, as in Spark."""
    strategy = given.text("startingOffsetsByTimestampStrategy") or "error"
    if strategy not in ("error", "latest"):
        raise option_error("startingOffsetsByTimestampStrategy", "is error or latest")
    latest_if_none = end == "ending" or strategy == "latest"
    time = given.text(f"{end}Timestamp")
    if time is not None:
        if not time.isdecimal():
            raise option_error(f"{end}Timestamp", f"is {time!r}, not milliseconds since 1970")
        return AtTimes(Millis(int(time)), latest_if_none)
    name = f"{end}OffsetsByTimestamp"
    if given.text(name) is not None:
        times = _by_partition(name, given.json(name), minimum=0)
        return AtTimes(
            {partition: Millis(time_ms) for partition, time_ms in times.items()}, latest_if_none
        )
    name = f"{end}Offsets"
    text = given.text(name)
    if text is None:
        return None
    if text.lower() in set(LogEnd):
        if end == "ending" and text.lower() == LogEnd.EARLIEST:
            raise option_error(name, "cannot be earliest: there would be nothing to read")
        return LogEnd(text.lower())
    if not text.startswith("{"):
        names = "latest" if end == "ending" else "earliest, latest"
        raise option_error(name, f"is {text!r}, not {names} or JSON such as " + _OFFSETS_EXAMPLE)
    return AtOffsets(_by_partition(name, given.json(name), minimum=EARLIEST_OFFSET))


def _by_partition(
    name: str, document: dict[str, Any], *, minimum: int
) -> dict[TopicPartition, int]:
    by_partition = {}
    for topic, numbers in document.items():
        if not isinstance(numbers, dict):
            raise option_error(name, f"has no partitions for topic {topic}")
        for index, number in numbers.items():
            if not index.isdecimal() or not isinstance(number, int) or number < minimum:
                raise option_error(name, f"has {index!r}: {number!r} for topic {topic}")
            by_partition[TopicPartition(topic, int(index))] = number
    return by_partition


def _isolation(given: GivenOptions, kafka: Mapping[str, str]) -> Isolation:
    text = given.text("isolation") or kafka.get("isolation.level", "read_committed")
    try:
        return Isolation[text.upper()]
    except KeyError:
        raise option_error(
            "isolation", f"is {text!r}, not read_committed or read_uncommitted"
        ) from None


def _on_error(given: GivenOptions, columns: tuple[str, ...] | None) -> OnError:
    on_error = given.choice("onError", OnError)
    has_error_column = columns is None or "_error" in columns
    if on_error is None:
        return OnError.QUARANTINE if has_error_column else OnError.FAIL
    if on_error is OnError.QUARANTINE and not has_error_column:
        raise option_error("onError", "is quarantine, so `columns` must have _error (and _value)")
    return on_error


def _group(given: GivenOptions, kafka: Mapping[str, str], selection: Selection) -> str | None:
    group = given.text("group") or kafka.get("group.id")
    if group is not None:
        return None if group.lower() == "none" else group
    match selection:
        case TopicSelection(names):
            selected = ",".join(names)
        case PatternSelection(expression):
            selected = expression
        case PartitionSelection(partitions):
            selected = ",".join(map(str, partitions))
    return f"penstock.spark.{selected}"[:_GROUP_CHARACTERS_MAX]
