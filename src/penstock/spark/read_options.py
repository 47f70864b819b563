"""What `spark.read.format("penstock")` may be told, and what is made of it.

Every option is a row of `read_option_table`; one that is no row is refused, because an option that
is silently dropped is a riddle. Asks nobody: names of topics and versions are taken as given.
"""

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

from penstock.errors import ErrorCode, Refused
from penstock.link.offsets import Isolation
from penstock.model import Millis, TopicPartition
from penstock.spark.connections import BOOTSTRAP, NO_TABLES, kafka_properties
from penstock.spark.read_option_rows import OPTIONS

EARLIEST_OFFSET: Final = -2  # in a JSON of offsets, as Spark's source has it
LATEST_OFFSET: Final = -1
EVERY_COLUMN: Final = "*"


_IGNORED: Final = frozenset(  # Spark's source has them, and here there is nothing they could mean
    {
        "path",
        "groupidprefix",
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
        "kafkaconsumer.polltimeoutms",
    }
)
_OF_CREATE_TABLE: Final = "provider"  # what Spark gives in place of the options
_OFFSETS_EXAMPLE: Final = '{"orders": {"0": 23, "1": -2}}'
_KNOWN: Final = frozenset(option.name.lower() for option in OPTIONS)
_STREAM_ENDS: Final = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
_BATCH_LIMITS: Final = ("maxOffsetsPerTrigger", "maxBytesPerTrigger")


class Coding(StrEnum):
    """What the bytes of a key or value are."""

    RAW = "raw"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    JSON = "json"
    AUTO = "auto"  # whatever the registry says of the subject


class OnError(StrEnum):
    """What becomes of a record that cannot be read."""

    QUARANTINE = "quarantine"
    FAIL = "fail"
    NULL = "null"


class Anchor(StrEnum):
    """An end of a log by name."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition, or -2 and -1 for its ends."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The first record at or after a time: of each partition, or of all."""

    times: Mapping[TopicPartition, Millis] | Millis
    latest_if_none: bool


Bound: TypeAlias = Anchor | AtOffsets | AtTimes


@dataclass(frozen=True, slots=True)
class Topics:
    """By name."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """Every topic whose whole name matches."""

    expression: str


@dataclass(frozen=True, slots=True)
class Partitions:
    """One by one."""

    partitions: tuple[TopicPartition, ...]


Selection: TypeAlias = Topics | Pattern | Partitions


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read, checked."""

    kafka: Mapping[str, str]
    selection: Selection
    starting: Bound | None  # None: the mode's own default
    ending: Bound
    isolation: Isolation
    fail_on_data_loss: bool
    include_headers: bool
    offsets_per_trigger_max: int | None
    bytes_per_trigger_max: int | None
    partitions_min: int | None
    records_per_partition_max: int | None
    registry: str | None
    value: Coding
    key: Coding
    reader_schema: str
    key_reader_schema: str
    assert_formats: bool
    message: str | None
    key_message: str | None
    columns: tuple[str, ...] | None
    wants_all: bool  # said so, rather than nothing said about columns
    on_error: OnError
    registry_wait_ms: int
    group: str | None


def read_options(given: Mapping[str, str], *, is_stream: bool | None = None) -> ReadOptions:
    """The options, checked; Refused says which is wrong and what it may be.

    What only a stream or only a batch understands is refused once it is known which it is.
    """
    options = _Given({name.lower(): value for name, value in given.items()})
    options.refuse_unknown()
    if is_stream is not None:
        options.refuse_present(
            _STREAM_ENDS if is_stream else _BATCH_LIMITS, "a stream" if is_stream else "a batch"
        )
    kafka = kafka_properties(given)
    selection = _selection(options)
    registry = options.text("registry")
    value = options.choice("value", Coding, Coding.AUTO if registry else Coding.RAW)
    key = options.choice("key", Coding, Coding.RAW)
    if registry is None and not value is key is Coding.RAW:
        raise _refused("registry", "is missing: say where the schemas are, as http://host:port")
    wants_all = options.text("columns") == EVERY_COLUMN
    columns = None if wants_all else options.names("columns")
    return ReadOptions(
        kafka=kafka,
        selection=selection,
        starting=_bound(options, "starting"),
        ending=_bound(options, "ending") or Anchor.LATEST,
        isolation=_isolation(options, kafka),
        fail_on_data_loss=options.flag("failOnDataLoss", True),
        include_headers=options.flag("includeHeaders", False),
        offsets_per_trigger_max=options.count("maxOffsetsPerTrigger"),
        bytes_per_trigger_max=options.count("maxBytesPerTrigger"),
        partitions_min=options.count("minPartitions"),
        records_per_partition_max=options.count("maxRecordsPerPartition"),
        registry=registry,
        value=value,
        key=key,
        reader_schema=options.text("readerSchema") or "latest",
        key_reader_schema=options.text("keyReaderSchema") or "latest",
        assert_formats=options.flag("assertFormats", False),
        message=options.text("message"),
        key_message=options.text("keyMessage"),
        columns=columns,
        wants_all=wants_all,
        on_error=_on_error(options, columns),
        registry_wait_ms=options.count("registryWaitMs") or 30_000,
        group=_group(options, kafka, selection),
    )


class _Given:
    """Options as they came, by names in lower case."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def refuse_unknown(self) -> None:
        if _OF_CREATE_TABLE in self._given:
            raise Refused(ErrorCode.invalid_config, NO_TABLES)
        for name in self._given:
            if name.startswith("kafka.") or name in _KNOWN or name in _IGNORED | {BOOTSTRAP}:
                continue
            near = difflib.get_close_matches(name, _KNOWN, 1)
            spelled = {option.name.lower(): option.name for option in OPTIONS}
            hint = f": did you mean {spelled[near[0]]}?" if near else ""
            raise _refused(name, f"is not known{hint}")

    def refuse_present(self, names: tuple[str, ...], where: str) -> None:
        for name in names:
            if self.text(name) is not None:
                raise _refused(name, f"has no meaning for {where}")

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower(), "").strip() or None

    def flag(self, name: str, default: bool) -> bool:
        told = (self.text(name) or str(default)).lower()
        if told not in ("true", "false"):
            raise _refused(name, f"is {told!r}, not true or false")
        return told == "true"

    def count(self, name: str) -> int | None:
        told = self.text(name)
        if told is None:
            return None
        if not told.isdecimal() or int(told) == 0:
            raise _refused(name, f"is {told!r}, not a number above zero")
        return int(told)

    def choice(self, name: str, kind: type[Coding], default: Coding) -> Coding:
        told = (self.text(name) or default).lower()
        if told not in set(kind):
            raise _refused(name, f"is {told!r}, none of {', '.join(kind)}")
        return kind(told)

    def names(self, name: str) -> tuple[str, ...] | None:
        told = self.text(name)
        if told is None:
            return None
        names = tuple(one.strip() for one in told.split(",") if one.strip())
        if len(set(names)) < len(names):
            raise _refused(name, "has a name twice")
        return names

    def json(self, name: str, told: str) -> dict[str, Any]:
        try:
            found = json.loads(told)
        except ValueError as wrong:
            raise _refused(name, f"is no JSON: {wrong}") from None
        if not isinstance(found, dict):
            raise _refused(name, "is no JSON object with topics' names")
        return found


def _selection(options: _Given) -> Selection:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if options.text(name)]
    if len(given) != 1:
        raise _refused(
            "subscribe", f"or subscribePattern or assign: one is needed, not {len(given)}"
        )
    if given == ["subscribe"]:
        return Topics(options.names("subscribe") or ())
    if given == ["assign"]:
        return Partitions(_assigned(options))
    expression = options.text("subscribePattern") or ""
    try:
        re.compile(expression)
    except re.error as wrong:
        raise _refused("subscribePattern", f"is no regular expression: {wrong}") from None
    return Pattern(expression)


def _assigned(options: _Given) -> tuple[TopicPartition, ...]:
    found = options.json("assign", options.text("assign") or "")
    partitions = []
    for topic, indexes in found.items():
        if not isinstance(indexes, list) or not all(_is_index(one) for one in indexes):
            raise _refused("assign", f"has no list of partitions for topic {topic}")
        partitions += [TopicPartition(topic, index) for index in sorted(set(indexes))]
    if not partitions:
        raise _refused("assign", "names no partition")
    return tuple(partitions)


def _is_index(one: object) -> bool:
    return isinstance(one, int) and not isinstance(one, bool) and one >= 0


def _bound(options: _Given, end: str) -> Bound | None:
    """`...Timestamp` goes before `...ByTimestamp`, and that before `...Offsets`, as in Spark."""
    strategy = options.text("startingOffsetsByTimestampStrategy") or "error"
    if strategy not in ("error", "latest"):
        raise _refused("startingOffsetsByTimestampStrategy", "is error or latest")
    latest_if_none = end == "ending" or strategy == "latest"
    time = options.text(f"{end}Timestamp")
    if time is not None:
        if not time.isdecimal():
            raise _refused(f"{end}Timestamp", f"is {time!r}, not milliseconds since 1970")
        return AtTimes(Millis(int(time)), latest_if_none)
    name = f"{end}OffsetsByTimestamp"
    told = options.text(name)
    if told is not None:
        times = _by_partition(name, options.json(name, told), least=0)
        return AtTimes({place: Millis(one) for place, one in times.items()}, latest_if_none)
    name = f"{end}Offsets"
    told = options.text(name)
    if told is None:
        return None
    if told.lower() in set(Anchor):
        if end == "ending" and told.lower() == Anchor.EARLIEST:
            raise _refused(name, "cannot be earliest: there would be nothing to read")
        return Anchor(told.lower())
    if not told.startswith("{"):
        names = "latest" if end == "ending" else "earliest, latest"
        raise _refused(name, f"is {told!r}, not {names} or JSON such as " + _OFFSETS_EXAMPLE)
    return AtOffsets(_by_partition(name, options.json(name, told), least=EARLIEST_OFFSET))


def _by_partition(name: str, found: dict[str, Any], *, least: int) -> dict[TopicPartition, int]:
    places = {}
    for topic, numbers in found.items():
        if not isinstance(numbers, dict):
            raise _refused(name, f"has no partitions for topic {topic}")
        for index, number in numbers.items():
            if not index.isdecimal() or not isinstance(number, int) or number < least:
                raise _refused(name, f"has {index!r}: {number!r} for topic {topic}")
            places[TopicPartition(topic, int(index))] = number
    return places


def _isolation(options: _Given, kafka: Mapping[str, str]) -> Isolation:
    told = options.text("isolation") or kafka.get("isolation.level", "read_committed")
    try:
        return Isolation[told.upper()]
    except KeyError:
        raise _refused(
            "isolation", f"is {told!r}, not read_committed or read_uncommitted"
        ) from None


def _on_error(options: _Given, columns: tuple[str, ...] | None) -> OnError:
    told = options.text("onError")
    shows = columns is None or "_error" in columns
    if told is None:
        return OnError.QUARANTINE if shows else OnError.FAIL
    if told.lower() not in set(OnError):
        raise _refused("onError", f"is {told!r}, none of {', '.join(OnError)}")
    if told.lower() == OnError.QUARANTINE and not shows:
        raise _refused("onError", "is quarantine, so `columns` must have _error (and _value)")
    return OnError(told.lower())


def _group(options: _Given, kafka: Mapping[str, str], selection: Selection) -> str | None:
    told = options.text("group") or kafka.get("group.id")
    if told is not None:
        return None if told.lower() == "none" else told
    match selection:
        case Topics(names):
            what = ",".join(names)
        case Pattern(expression):
            what = expression
        case Partitions(partitions):
            what = ",".join(map(str, partitions))
    return f"penstock.spark.{what}"[:249]


def _refused(name: str, why: str) -> Refused:
    return Refused(ErrorCode.invalid_config, f"option {name} {why}")
