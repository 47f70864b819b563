"""The options of the source, checked."""

import pytest

from penstock.errors import Refused
from penstock.link.offsets import Isolation
from penstock.model import Millis, TopicPartition
from penstock.spark.read_options import (
    AtOffsets,
    AtTimes,
    LogEnd,
    OnError,
    PartitionSelection,
    PatternSelection,
    PayloadFormat,
    ReadOptions,
    TopicSelection,
    read_options,
)

BASE = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}
DECODED = {**BASE, "registry": "http://127.0.0.1:8081"}


def options(**more: str) -> ReadOptions:
    return read_options({**BASE, **more})


def test_absent_options_have_defaults() -> None:
    defaults = options()
    assert defaults.selection == TopicSelection(("orders",))
    assert (defaults.starting, defaults.ending) == (None, LogEnd.LATEST)
    assert defaults.isolation is Isolation.READ_COMMITTED
    assert defaults.fail_on_data_loss
    assert defaults.value is defaults.key is PayloadFormat.RAW
    assert defaults.group == "penstock.spark.orders"


def test_with_a_registry_values_have_the_type_it_has() -> None:
    assert read_options(DECODED).value is PayloadFormat.AUTO
    assert read_options({**DECODED, "value": "AVRO"}).value is PayloadFormat.AVRO


@pytest.mark.parametrize("payload", ["value", "key"])
def test_decoding_without_a_registry_is_refused(payload: str) -> None:
    with pytest.raises(Refused, match="option registry is missing"):
        options(**{payload: "avro"})


def test_names_are_case_insensitive() -> None:
    assert read_options({**BASE, "MAXOFFSETSPERTRIGGER": "5"}).offsets_per_trigger_max == 5


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"subscribe": "a, b"}, TopicSelection(("a", "b"))),
        ({"subscribePattern": "or.*"}, PatternSelection("or.*")),
        (
            {"assign": '{"a": [1, 0], "b": [2]}'},
            PartitionSelection(
                (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 2))
            ),
        ),
    ],
)
def test_topics_are_selected_in_one_of_three_ways(given: dict[str, str], expected: object) -> None:
    assert read_options({"kafka.bootstrap.servers": "a:1", **given}).selection == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"startingOffsets": "Earliest"}, LogEnd.EARLIEST),
        (
            {"startingOffsets": '{"orders": {"0": 23, "1": -2}}'},
            AtOffsets({TopicPartition("orders", 0): 23, TopicPartition("orders", 1): -2}),
        ),
        (
            {"startingOffsetsByTimestamp": '{"orders": {"0": 1700}}', "startingOffsets": "latest"},
            AtTimes({TopicPartition("orders", 0): Millis(1700)}, latest_if_none=False),
        ),
        (
            {"startingTimestamp": "1700", "startingOffsetsByTimestampStrategy": "latest"},
            AtTimes(Millis(1700), latest_if_none=True),
        ),
    ],
)
def test_the_start_is_given_by_name_offset_or_time(given: dict[str, str], expected: object) -> None:
    assert options(**given).starting == expected


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"subscribe": ""}, "exactly one is required, not 0"),
        ({"assign": '{"orders": [0]}'}, "exactly one is required, not 2"),
        ({"subscribe": "", "assign": '{"orders": 0}'}, "no list of partitions for topic orders"),
        ({"subscribe": "", "assign": "{}"}, "names no partition"),
        ({"subscribe": "", "subscribePattern": "("}, "is not a regular expression"),
        ({"startingOffsets": "begin"}, "is 'begin', not earliest, latest or JSON such as"),
        ({"endingOffsets": "end"}, "endingOffsets is 'end', not latest or JSON such as"),
        ({"startingOffsets": '{"orders"'}, "startingOffsets is not JSON"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "has '0': -3 for topic orders"),
        ({"startingOffsets": "[]"}, "not earliest, latest or JSON such as"),
        ({"startingOffsets": '{"orders": 3}'}, "no partitions for topic orders"),
        ({"endingOffsets": "earliest"}, "there would be nothing to read"),
        ({"startingTimestamp": "yesterday"}, "not milliseconds since 1970"),
        ({"startingOffsetsByTimestampStrategy": "maybe"}, "is error or latest"),
        ({"maxOffsetsPerTrigger": "0"}, "not a number above zero"),
        ({"failOnDataLoss": "no"}, "not true or false"),
        ({"isolation": "dirty"}, "not read_committed or read_uncommitted"),
        ({"value": "xml"}, "not one of raw, avro, protobuf, json, auto"),
        ({"columns": "a,a"}, "has a name twice"),
        ({"onError": "ignore"}, "not one of quarantine, fail, null"),
        ({"onError": "quarantine", "columns": "a"}, "must have _error"),
        ({"maxOffsetPerTrigger": "5"}, "did you mean maxOffsetsPerTrigger"),
        ({"nonsense": "5"}, "option nonsense is not known"),
        ({"provider": "penstock"}, "use CREATE TEMPORARY VIEW orders USING penstock OPTIONS"),
    ],
)
def test_an_invalid_option_is_refused_by_name(given: dict[str, str], reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        options(**given)


def test_options_of_the_other_kind_of_read_are_refused() -> None:
    with pytest.raises(Refused, match="endingOffsets has no meaning for a stream"):
        read_options({**BASE, "endingOffsets": "latest"}, is_stream=True)
    with pytest.raises(Refused, match="maxOffsetsPerTrigger has no meaning for a batch"):
        read_options({**BASE, "maxOffsetsPerTrigger": "1"}, is_stream=False)


def test_records_that_cannot_be_decoded_end_a_query_without_an_error_column() -> None:
    assert options().on_error is OnError.QUARANTINE
    assert options(columns="a,b").on_error is OnError.FAIL
    assert options(columns="a,_error").on_error is OnError.QUARANTINE
    assert options(columns="a", onError="null").on_error is OnError.NULL


def test_options_of_sparks_own_source_without_meaning_here_are_accepted() -> None:
    options(**{"groupIdPrefix": "x", "kafkaConsumer.pollTimeoutMs": "1"})


def test_the_group_can_be_named_or_disabled() -> None:
    assert options(group="fraud").group == "fraud"
    assert options(**{"kafka.group.id": "fraud"}).group == "fraud"
    assert options(group="none").group is None
