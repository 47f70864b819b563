import pytest

from penstock.errors import Refused
from penstock.link.offsets import Isolation
from penstock.model import Millis, TopicPartition
from penstock.spark.read_options import (
    Anchor,
    AtOffsets,
    AtTimes,
    Coding,
    OnError,
    Partitions,
    Pattern,
    ReadOptions,
    Topics,
    read_options,
)

BASE = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}
DECODED = {**BASE, "registry": "http://127.0.0.1:8081"}


def options(**more: str) -> ReadOptions:
    return read_options({**BASE, **more})


def test_what_is_not_said_has_a_default() -> None:
    told = options()
    assert told.selection == Topics(("orders",))
    assert (told.starting, told.ending) == (None, Anchor.LATEST)
    assert told.isolation is Isolation.READ_COMMITTED
    assert told.fail_on_data_loss
    assert told.value is told.key is Coding.RAW
    assert told.group == "penstock.spark.orders"


def test_with_a_registry_values_are_whatever_it_says() -> None:
    assert read_options(DECODED).value is Coding.AUTO
    assert read_options({**DECODED, "value": "AVRO"}).value is Coding.AVRO


@pytest.mark.parametrize("side", ["value", "key"])
def test_decoding_without_a_registry_is_refused(side: str) -> None:
    with pytest.raises(Refused, match="option registry is missing"):
        options(**{side: "avro"})


def test_names_are_taken_in_any_case() -> None:
    assert read_options({**BASE, "MAXOFFSETSPERTRIGGER": "5"}).offsets_per_trigger_max == 5


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"subscribe": "a, b"}, Topics(("a", "b"))),
        ({"subscribePattern": "or.*"}, Pattern("or.*")),
        (
            {"assign": '{"a": [1, 0], "b": [2]}'},
            Partitions((TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 2))),
        ),
    ],
)
def test_topics_are_chosen_in_one_of_three_ways(given: dict[str, str], told: object) -> None:
    assert read_options({"kafka.bootstrap.servers": "a:1", **given}).selection == told


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"startingOffsets": "Earliest"}, Anchor.EARLIEST),
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
def test_where_to_begin_is_said_by_name_offset_or_time(given: dict[str, str], told: object) -> None:
    assert options(**given).starting == told


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"subscribe": ""}, "one is needed, not 0"),
        ({"assign": '{"orders": [0]}'}, "one is needed, not 2"),
        ({"subscribe": "", "assign": '{"orders": 0}'}, "no list of partitions for topic orders"),
        ({"subscribe": "", "assign": "{}"}, "names no partition"),
        ({"subscribe": "", "subscribePattern": "("}, "no regular expression"),
        ({"startingOffsets": "begin"}, "is 'begin', not earliest, latest or JSON such as"),
        ({"endingOffsets": "end"}, "endingOffsets is 'end', not latest or JSON such as"),
        ({"startingOffsets": '{"orders"'}, "startingOffsets is no JSON"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "has '0': -3 for topic orders"),
        ({"startingOffsets": "[]"}, "not earliest, latest or JSON such as"),
        ({"startingOffsets": '{"orders": 3}'}, "no partitions for topic orders"),
        ({"endingOffsets": "earliest"}, "there would be nothing to read"),
        ({"startingTimestamp": "yesterday"}, "not milliseconds since 1970"),
        ({"startingOffsetsByTimestampStrategy": "maybe"}, "is error or latest"),
        ({"maxOffsetsPerTrigger": "0"}, "not a number above zero"),
        ({"failOnDataLoss": "no"}, "not true or false"),
        ({"isolation": "dirty"}, "not read_committed or read_uncommitted"),
        ({"value": "xml"}, "none of raw, avro, protobuf, json, auto"),
        ({"columns": "a,a"}, "has a name twice"),
        ({"onError": "ignore"}, "none of quarantine, fail, null"),
        ({"onError": "quarantine", "columns": "a"}, "must have _error"),
        ({"maxOffsetPerTrigger": "5"}, "did you mean maxOffsetsPerTrigger"),
        ({"nonsense": "5"}, "option nonsense is not known"),
        ({"provider": "penstock"}, "use CREATE TEMPORARY VIEW orders USING penstock OPTIONS"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(given: dict[str, str], why: str) -> None:
    with pytest.raises(Refused, match=why):
        options(**given)


def test_what_only_the_other_kind_of_read_understands_is_refused() -> None:
    with pytest.raises(Refused, match="endingOffsets has no meaning for a stream"):
        read_options({**BASE, "endingOffsets": "latest"}, is_stream=True)
    with pytest.raises(Refused, match="maxOffsetsPerTrigger has no meaning for a batch"):
        read_options({**BASE, "maxOffsetsPerTrigger": "1"}, is_stream=False)


def test_rows_that_cannot_be_read_end_a_query_that_does_not_ask_for_them() -> None:
    assert options().on_error is OnError.QUARANTINE
    assert options(columns="a,b").on_error is OnError.FAIL
    assert options(columns="a,_error").on_error is OnError.QUARANTINE
    assert options(columns="a", onError="null").on_error is OnError.NULL


def test_options_of_sparks_own_source_that_mean_nothing_here_are_taken() -> None:
    options(**{"groupIdPrefix": "x", "kafkaConsumer.pollTimeoutMs": "1"})


def test_the_group_can_be_named_or_left_out() -> None:
    assert options(group="fraud").group == "fraud"
    assert options(**{"kafka.group.id": "fraud"}).group == "fraud"
    assert options(group="none").group is None
