"""Batch reads by the source without a JVM: the tests call what Spark calls."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from penstock.client.registry import Registry
from penstock.columns.vm.payloads import PayloadLimits
from penstock.errors import ErrorCode, Refused
from penstock.link.fetch_range import Chunk
from penstock.link.settings import UnreachableError
from penstock.model import Offset
from penstock.protocol.batch import read_header
from penstock.protocol.records import Record, build_batch
from penstock.serde import batch_serializers
from penstock.serde.contract import Contract, Form
from penstock.serde.errors import RegistryUnavailableError
from penstock.serde.frame import SchemaKey, Side
from penstock.serde.serializers import Serializer
from penstock.spark import WriteRequest, connections, decode_rows, exactly_once, read_task
from penstock.spark.decode_rows import UnreadableRecordError
from penstock.spark.source import batch_reader, read_schema
from penstock.testing.embedded import EmbeddedBroker, EmbeddedRegistry
from tests.support.source_topic import V1, V2, SourceTopic, avro, rows, stream, table


def test_raw_rows_are_those_of_sparks_own_source(topic: SourceTopic) -> None:
    topic.put(b"one", None, key=b"k", timestamp=1_700_000_000_123, headers=[("h", b"1")])
    result = table(topic.options, includeHeaders="true")
    assert result.to_pylist() == [
        {
            "key": b"k",
            "value": value,
            "topic": topic.name,
            "partition": 0,
            "offset": offset,
            "timestamp": datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC),
            "timestampType": 0,
            "headers": [{"key": "h", "value": b"1"}],
        }
        for offset, value in enumerate([b"one", None])
    ]


def test_values_of_several_versions_are_read_as_the_latest_in_offset_order(
    topic: SourceTopic,
) -> None:
    one, two, three = topic.orders(V1, 1, 2, 3)
    four = topic.serializer(V2).serialize({"id": 4, "at": 4, "note": "new"}).content
    assert four is not None
    topic.put(one, four, two, None, three)
    result = table(topic.decoded)
    assert result.column("id").to_pylist() == [1, 4, 2, None, 3]
    assert result.column("note").to_pylist() == [None, "new", None, None, None]
    assert result.column("_offset").to_pylist() == [0, 1, 2, 3, 4]
    assert result.column("at").to_pylist()[1] == datetime(1970, 1, 1, microsecond=4000, tzinfo=UTC)
    assert result.column("_error").null_count == 5
    ids = result.column("_schema_id").to_pylist()
    assert ids[0] == ids[2] == ids[4] != ids[1]
    assert ids[3] is None


def test_rows_that_decode_to_too_much_come_in_several_batches(
    topic: SourceTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = topic.orders(V1, *range(50)), topic.orders(V2, *range(50, 100))
    topic.put(*(value for pair in zip(first, second, strict=True) for value in pair))
    monkeypatch.setattr(batch_serializers, "USUAL_LIMITS", PayloadLimits(output_bytes_max=500))
    result = table(topic.decoded, columns="id,note,_error")
    assert result.column("id").num_chunks >= 4
    assert result.column("id").to_pylist() == [
        half + 50 * odd for half in range(50) for odd in (0, 1)
    ]


def test_a_reader_schema_is_chosen_by_version_or_text(topic: SourceTopic) -> None:
    topic.put(*topic.orders(V1, 1), *topic.orders(V2, 2))
    assert table(topic.decoded, readerSchema="1").column_names[:3] == ["id", "at", "_key"]
    renamed = avro({"name": "number", "type": "double", "aliases": ["id"]})
    result = table(topic.decoded, value="avro", readerSchema=renamed, columns="number,_offset")
    assert result.to_pydict() == {"number": [1.0, 2.0], "_offset": [0, 1]}


def test_only_requested_columns_are_returned(topic: SourceTopic) -> None:
    topic.put(*topic.orders(V2, 7))
    assert table(topic.decoded, columns="note, id").to_pydict() == {"note": [None], "id": [7]}
    assert table(topic.decoded, columns="_offset").to_pydict() == {"_offset": [0]}
    with pytest.raises(Refused, match="no column 'total'"):
        read_schema({**topic.decoded, "columns": "total"})


def test_a_schema_id_in_a_header_is_read_too(topic: SourceTopic) -> None:
    framed = topic.serializer(V1, Form.HEADER).serialize({"id": 5, "at": 0})
    topic.put(framed.content, headers=list(framed.headers))
    assert table(topic.decoded).column("id").to_pylist() == [5]


def test_keys_are_decoded_like_values(topic: SourceTopic) -> None:
    write = Serializer(topic.registry, topic.name, Contract(V1), side=Side.KEY)
    text = Serializer(topic.registry, topic.name, Contract(V1))
    topic.put(text.serialize({"id": 1}).content, key=write.serialize({"id": 9}).content)
    topic.put(None, key=b"garbage")
    result = table(topic.decoded, key="avro").to_pylist()
    assert result[0]["_key"]["id"] == 9
    assert result[0]["_key_bytes"] is None
    assert result[1]["_key"] is None
    assert result[1]["_key_bytes"] == b"garbage"
    assert result[1]["_error"]["side"] == "key"


def broken(topic: SourceTopic) -> list[bytes]:
    (good,) = topic.orders(V1, 1)
    return [b"garbage", b"\0\x7f\xff\xff\xff", good + b"!", good, good[:3]]


def test_a_record_that_cannot_be_decoded_is_a_row_with_the_reason_and_its_bytes(
    topic: SourceTopic,
) -> None:
    values = broken(topic)
    topic.put(*values)
    result = table(topic.decoded).to_pylist()
    assert [row["id"] for row in result] == [None, None, None, 1, None]
    assert [row["_value"] for row in result] == [*values[:3], None, values[4]]
    assert [row["_error"] and row["_error"]["reason"] for row in result] == [
        "not_framed",
        "unknown_schema",
        "trailing_bytes",
        None,
        "truncated_frame",
    ]


def test_a_record_that_cannot_be_decoded_can_be_null_or_fail_the_query(topic: SourceTopic) -> None:
    topic.put(*broken(topic))
    assert table(topic.decoded, onError="null", columns="id").column(0).to_pylist() == [
        None, None, None, 1, None
    ]  # fmt: skip
    with pytest.raises(
        UnreadableRecordError, match=f"{topic.name}-0 at offset 0: cannot decode the value"
    ):
        table(topic.decoded, onError="fail")
    with pytest.raises(UnreadableRecordError, match="not_framed"):
        table(topic.decoded, columns="_offset")


def test_a_reader_schema_that_cannot_resolve_gives_rows_with_the_reason(topic: SourceTopic) -> None:
    topic.put(*topic.orders(V1, 1))
    other = avro({"name": "city", "type": "string"})
    result = table(topic.decoded, value="avro", readerSchema=other).to_pylist()
    assert result[0]["_error"]["reason"] == "unresolvable"


def test_a_time_out_of_sparks_range_is_an_error_of_its_row_only(topic: SourceTopic) -> None:
    write = topic.serializer(V1)
    near = write.serialize({"id": 2, "at": 3}).content
    assert near is not None
    far = near[:-1] + b"\x80" * 8 + b"\x01"  # a year beyond 9999, as other clients may write it
    topic.put(far, near)
    result = table(topic.decoded).to_pylist()
    assert [row["id"] for row in result] == [None, 2]
    assert "does not fit its type" in result[0]["_error"]["detail"]
    assert result[0]["_value"] == far


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_compression_codec_is_read(topic: SourceTopic, codec: str) -> None:
    topic.put(*[b"x" * 200] * 50, settings={"compression.type": codec, "linger.ms": 100})
    assert table(topic.options).num_rows == 50


def test_aborted_records_are_hidden_unless_requested(topic: SourceTopic) -> None:
    producer = Producer({"bootstrap.servers": topic.bootstrap, "transactional.id": topic.name})
    producer.init_transactions(20)
    for value, commits in ((b"aborted", False), (b"committed", True)):
        producer.begin_transaction()
        producer.produce(topic.name, value, partition=0)
        producer.flush(20)  # an abort drops what was not sent
        (producer.commit_transaction if commits else producer.abort_transaction)(20)
    assert table(topic.options).column("value").to_pylist() == [b"committed"]
    dirty = table(topic.options, isolation="read_uncommitted")
    assert dirty.column("value").to_pylist() == [b"aborted", b"committed"]


def test_a_batch_is_bounded_by_offsets_and_times(topic: SourceTopic) -> None:
    for number in range(5):
        topic.put(b"%d" % number, timestamp=1000 + number)

    def values(**more: str) -> list[Any]:
        return table(topic.options, **more).column("value").to_pylist()

    offsets = json.dumps({topic.name: {"0": 3}})
    assert values(startingOffsets=offsets) == [b"3", b"4"]
    assert values(endingOffsets=offsets) == [b"0", b"1", b"2"]
    assert values(startingTimestamp="1002", endingTimestamp="1004") == [b"2", b"3"]
    times = json.dumps({topic.name: {"0": 1004}})
    assert values(startingOffsetsByTimestamp=times) == [b"4"]
    with pytest.raises(Refused, match="no record at or after 2000"):
        values(startingTimestamp="2000")
    late = values(startingTimestamp="2000", startingOffsetsByTimestampStrategy="latest")
    assert late == []


def test_offsets_beyond_the_end_are_refused_or_left_out(topic: SourceTopic) -> None:
    topic.put(b"a")
    beyond = json.dumps({topic.name: {"0": 100}})
    with pytest.raises(Refused, match=f"{topic.name}-0 ends at 1, before offset 100"):
        table(topic.options, endingOffsets=beyond)
    assert table(topic.options, endingOffsets=beyond, failOnDataLoss="false").num_rows == 1
    past = f"{topic.name}-0 ends at 1, before offset 100 of startingOffsets"
    with pytest.raises(Refused, match=past):
        table(topic.options, startingOffsets=beyond)
    assert table(topic.options, startingOffsets=beyond, failOnDataLoss="false").num_rows == 0
    with pytest.raises(Refused, match=past):
        stream(topic.options, startingOffsets=beyond)[0].initialOffset()
    lenient = stream(topic.options, startingOffsets=beyond, failOnDataLoss="false")[0]
    assert lenient.initialOffset()["offsets"] == {topic.name: {"0": 1}}
    with pytest.raises(Refused, match=f"lacks {topic.name}-0"):
        table(topic.options, startingOffsets=json.dumps({"other": {"0": 1}}))


def test_an_unknown_topic_is_named(bootstrap: str) -> None:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "nowhere"}
    with pytest.raises(Refused, match=r"topic 'nowhere'.*it does not exist"):
        table(options)


def test_partitions_and_patterns_select_what_is_read(
    make_topic: Callable[..., str], bootstrap: str, registry: Registry
) -> None:
    topic = SourceTopic(make_topic(3), bootstrap, registry)
    for partition in range(3):
        topic.put(b"%d" % partition, partition=partition)
    base = {"kafka.bootstrap.servers": bootstrap}
    chosen = table(base, assign=json.dumps({topic.name: [0, 2]}))
    assert chosen.column("value").to_pylist() == [b"0", b"2"]
    assert table(base, subscribePattern=f"{topic.name[:-1]}[{topic.name[-1]}]").num_rows == 3
    assert table(base, subscribePattern="none-such").num_rows == 0
    with pytest.raises(Refused, match=f"partition {topic.name}-7 does not exist"):
        table(base, assign=json.dumps({topic.name: [7]}))


def test_records_deleted_by_retention_are_an_error_by_default(topic: SourceTopic) -> None:
    topic.put(b"0", b"1", b"2", b"3")
    admin = AdminClient({"bootstrap.servers": topic.bootstrap})
    before = ClientPartition(topic.name, 0, 2)
    admin.delete_records([before])[before].result(20)
    from_start = json.dumps({topic.name: {"0": 0}})
    with pytest.raises(Refused, match=f"offset 0 is not in {topic.name}-0; it starts at 2"):
        table(topic.options, startingOffsets=from_start)
    result = table(topic.options, startingOffsets=from_start, failOnDataLoss="false")
    assert result.column("value").to_pylist() == [b"2", b"3"]


def test_a_corrupt_batch_is_named_by_its_offset(topic: SourceTopic, broker: EmbeddedBroker) -> None:
    topic.put(b"fine")
    topic.put(b"broken")
    (log,) = broker.folder.glob(f"**/{topic.name}-0/*.log")
    content = bytearray(log.read_bytes())
    content[content.index(b"broken")] ^= 1
    with log.open("r+b") as file:
        file.write(content)
    with pytest.raises(Refused, match=f"{topic.name}-0 has a corrupt batch at offset 1"):
        table(topic.options)


@pytest.mark.slow
def test_a_registry_that_cannot_be_reached_is_an_error_with_the_offset(topic: SourceTopic) -> None:
    with EmbeddedRegistry(topic.bootstrap) as passing:
        values = topic.orders(V1, 1)
        topic.put(*values)
        options = {**topic.decoded, "registry": passing.url, "registryWaitMs": "1"}
        options |= {"value": "avro", "readerSchema": V1}  # the writer's stays unknown
        schema = read_schema(options)
        reader = batch_reader(options, schema)
        partitions = reader.partitions()
    with pytest.raises(
        UnreadableRecordError, match=f"{topic.name}-0 from offset 0 on: the schema reg"
    ):
        rows(reader, partitions, schema)
    with pytest.raises(RegistryUnavailableError, match=rf"could not be asked.*{topic.name}-value"):
        read_schema({**topic.decoded, "registry": "http://127.0.0.1:9"})


def test_a_task_waits_for_a_registry_that_comes_back(
    topic: SourceTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.put(*topic.orders(V1, 1))
    monkeypatch.setattr(decode_rows, "_PAUSE_FIRST_S", 0.001)
    calls: list[object] = []
    schema = Registry.schema

    def fail_twice(registry: Registry, key: SchemaKey) -> Any:
        calls.append(key)
        if len(calls) < 3:
            raise RegistryUnavailableError(registry.url, f"schema {key}", "connection refused")
        return schema(registry, key)

    monkeypatch.setattr(Registry, "schema", fail_twice)
    assert table(topic.decoded, columns="id,_error").column("id").to_pylist() == [1]
    assert len(calls) == 3


class CompactedLog:
    """Returns what a cluster returns of a compacted partition."""

    def __init__(self, *batches: bytearray) -> None:
        self._batches = batches

    def stream(self, _: object) -> Iterator[Chunk]:
        for batch in self._batches:
            header = read_header(batch)
            ends = (Offset(header.end_offset),) * 3
            start = Offset(header.base_offset)
            yield Chunk(memoryview(batch), (), start, *ends, Offset(0))


def test_a_compacted_partition_is_read_with_its_gaps(
    topic: SourceTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.put(*[b"before compaction"] * 9)
    log = CompactedLog(
        *(
            build_batch([Record(offset=Offset(offset), value=b"kept") for offset in offsets])
            for offsets in ((0, 3, 4), (7,))
        )
    )
    monkeypatch.setattr(read_task, "cluster_for", lambda _: log)
    result = table(topic.options, endingOffsets=json.dumps({topic.name: {"0": 8}}))
    assert result.column("offset").to_pylist() == [0, 3, 4, 7]


def test_a_misspelt_topic_is_reported_before_a_missing_schema(
    topic: SourceTopic,
) -> None:
    misspelt = {**topic.decoded, "subscribe": topic.name + "s"}
    message = f"topic {topic.name}s does not exist: did you mean {topic.name}"
    with pytest.raises(Refused, match=message) as refusal:
        read_schema(misspelt)
    assert refusal.value.code is ErrorCode.unknown_topic_or_partition
    with pytest.raises(Refused, match=message):
        read_schema({**misspelt, "value": "raw", "key": "auto"})


def test_a_wrong_broker_address_fails_within_the_time_for_first_contact(
    topic: SourceTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "FIRST_CONTACT_MS", 200)
    wrong = {**topic.decoded, "kafka.bootstrap.servers": "127.0.0.1:9"}
    message = r"no broker responded within 200 ms: .*refused.*bootstrap.servers=127.0.0.1:9;"
    with pytest.raises(UnreachableError, match=message):
        batch_reader({**wrong, "value": "raw"}, read_schema({**wrong, "value": "raw"})).partitions()
    with pytest.raises(UnreachableError, match=message):
        stream(wrong, value="raw")[0].initialOffset()
    with pytest.raises(UnreachableError, match=message):
        read_schema(wrong)  # there is no schema, so the topic is checked
    with pytest.raises(UnreachableError, match=message):
        exactly_once(WriteRequest(topic.name, bootstrap="127.0.0.1:9"))


def test_a_subject_without_a_schema_is_named(topic: SourceTopic) -> None:
    with pytest.raises(Refused, match=f"Register a schema under {topic.name}-value"):
        read_schema(topic.decoded)
    topic.orders(V1, 1)
    with pytest.raises(Refused, match=f"subject {topic.name}-value is AVRO, option value is json"):
        read_schema({**topic.decoded, "value": "json"})
