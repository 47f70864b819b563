"""The source without a JVM: what Spark would call, called here."""

import json
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from penstock.client.registry import Registry
from penstock.columns.vm.slots import Limits
from penstock.errors import ErrorCode, Refused
from penstock.link.blocking import BlockingCluster
from penstock.link.fetch_range import Chunk
from penstock.link.offsets import committed_offsets
from penstock.link.settings import LinkSettings, UnreachableError
from penstock.model import Offset
from penstock.protocol.batch import read_header
from penstock.protocol.records import Record, build_batch
from penstock.schemas.model import SchemaType
from penstock.serde import batch_serializers
from penstock.serde.contract import Contract, Form
from penstock.serde.errors import RegistryUnavailableError
from penstock.serde.frame import SchemaKey, Side
from penstock.serde.serializers import Serializer
from penstock.spark import connections, decode_rows, exactly_once, read_task
from penstock.spark.decode_rows import UnreadableRecord
from penstock.spark.source import batch_reader, read_schema, stream_reader
from penstock.spark.spark_columns import arrow_schema
from penstock.testing.embedded import EmbeddedBroker, EmbeddedRegistry


def avro(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Order", "fields": list(fields)})


ID: dict[str, Any] = {"name": "id", "type": "long"}
AT: dict[str, Any] = {
    "name": "at",
    "type": {"type": "long", "logicalType": "timestamp-millis"},
    "default": 0,
}
NOTE: dict[str, Any] = {"name": "note", "type": ["null", "string"], "default": None}
V1, V2 = avro(ID, AT), avro(ID, AT, NOTE)


class Topic:
    """A topic of a test's own, and the options to read it."""

    def __init__(self, name: str, bootstrap: str, registry: Registry) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.registry = registry
        self.options = {"kafka.bootstrap.servers": bootstrap, "subscribe": name}
        self.decoded = {**self.options, "registry": registry.url}

    def put(self, *values: bytes | None, **more: Any) -> None:
        settings = more.pop("settings", {})
        producer = Producer({"bootstrap.servers": self.bootstrap, **settings})
        for value in values:
            producer.produce(self.name, value, **{"partition": 0, **more})
        assert producer.flush(20) == 0

    def delete(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_topics([self.name])[self.name].result(20)

    def create_again(self) -> None:
        self.delete()
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        again = NewTopic(self.name, num_partitions=1, replication_factor=1)
        admin.create_topics([again])[self.name].result(20)

    def serializer(self, schema: str, form: Form = Form.PREFIX) -> Serializer:
        return Serializer(self.registry, self.name, Contract(schema, form=form))

    def orders(self, schema: str, *ids: int) -> list[bytes]:
        write = self.serializer(schema)
        framed = [write.serialize({"id": number, "at": number}).content for number in ids]
        return [one for one in framed if one is not None]


@pytest.fixture
def topic(make_topic: Callable[..., str], bootstrap: str, registry: Registry) -> Topic:
    return Topic(make_topic(), bootstrap, registry)


def table(options: dict[str, str], **more: str) -> pa.Table:
    """All rows that a batch read gives."""
    given = {**options, **more}
    schema = read_schema(given)
    reader = batch_reader(given, schema)
    return rows(reader, reader.partitions(), schema)


def rows(reader: Any, partitions: Any, schema: Any) -> pa.Table:
    wanted = arrow_schema(schema)
    read = [batch for one in partitions for batch in reader.read(one)]
    for batch in read:
        assert batch.schema.equals(wanted)
        batch.validate(full=True)
    return pa.Table.from_batches(read, schema=wanted)


def test_raw_rows_are_those_of_sparks_own_source(topic: Topic) -> None:
    topic.put(b"one", None, key=b"k", timestamp=1_700_000_000_123, headers=[("h", b"1")])
    found = table(topic.options, includeHeaders="true")
    assert found.to_pylist() == [
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


def test_values_of_several_versions_are_read_as_the_latest_in_offset_order(topic: Topic) -> None:
    one, two, three = topic.orders(V1, 1, 2, 3)
    four = topic.serializer(V2).serialize({"id": 4, "at": 4, "note": "new"}).content
    assert four is not None
    topic.put(one, four, two, None, three)
    found = table(topic.decoded)
    assert found.column("id").to_pylist() == [1, 4, 2, None, 3]
    assert found.column("note").to_pylist() == [None, "new", None, None, None]
    assert found.column("_offset").to_pylist() == [0, 1, 2, 3, 4]
    assert found.column("at").to_pylist()[1] == datetime(1970, 1, 1, microsecond=4000, tzinfo=UTC)
    assert found.column("_error").null_count == 5
    ids = found.column("_schema_id").to_pylist()
    assert ids[0] == ids[2] == ids[4] != ids[1]
    assert ids[3] is None


def test_rows_that_are_too_much_at_once_come_in_several_batches(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = topic.orders(V1, *range(50)), topic.orders(V2, *range(50, 100))
    topic.put(*(one for pair in zip(first, second, strict=True) for one in pair))
    monkeypatch.setattr(batch_serializers, "USUAL_LIMITS", Limits(output_bytes_max=500))
    found = table(topic.decoded, columns="id,note,_error")
    assert found.column("id").num_chunks >= 4
    assert found.column("id").to_pylist() == [
        half + 50 * odd for half in range(50) for odd in (0, 1)
    ]


def test_a_reader_is_chosen_by_number_or_text(topic: Topic) -> None:
    topic.put(*topic.orders(V1, 1), *topic.orders(V2, 2))
    assert table(topic.decoded, readerSchema="1").column_names[:3] == ["id", "at", "_key"]
    renamed = avro({"name": "number", "type": "double", "aliases": ["id"]})
    found = table(topic.decoded, value="avro", readerSchema=renamed, columns="number,_offset")
    assert found.to_pydict() == {"number": [1.0, 2.0], "_offset": [0, 1]}


def test_only_the_columns_asked_for_are_there(topic: Topic) -> None:
    topic.put(*topic.orders(V2, 7))
    assert table(topic.decoded, columns="note, id").to_pydict() == {"note": [None], "id": [7]}
    assert table(topic.decoded, columns="_offset").to_pydict() == {"_offset": [0]}
    with pytest.raises(Refused, match="no column 'total'"):
        read_schema({**topic.decoded, "columns": "total"})


def test_a_schema_in_the_header_is_read_too(topic: Topic) -> None:
    framed = topic.serializer(V1, Form.HEADER).serialize({"id": 5, "at": 0})
    topic.put(framed.content, headers=list(framed.headers))
    assert table(topic.decoded).column("id").to_pylist() == [5]


def test_keys_are_decoded_as_values_are(topic: Topic) -> None:
    write = Serializer(topic.registry, topic.name, Contract(V1), side=Side.KEY)
    text = Serializer(topic.registry, topic.name, Contract(V1))
    topic.put(text.serialize({"id": 1}).content, key=write.serialize({"id": 9}).content)
    topic.put(None, key=b"rubbish")
    found = table(topic.decoded, key="avro").to_pylist()
    assert found[0]["_key"]["id"] == 9
    assert found[0]["_key_bytes"] is None
    assert found[1]["_key"] is None
    assert found[1]["_key_bytes"] == b"rubbish"
    assert found[1]["_error"]["side"] == "key"


def broken(topic: Topic) -> list[bytes]:
    (good,) = topic.orders(V1, 1)
    return [b"rubbish", b"\0\x7f\xff\xff\xff", good + b"!", good, good[:3]]


def test_what_cannot_be_read_is_a_row_with_the_reason_and_its_bytes(topic: Topic) -> None:
    values = broken(topic)
    topic.put(*values)
    found = table(topic.decoded).to_pylist()
    assert [row["id"] for row in found] == [None, None, None, 1, None]
    assert [row["_value"] for row in found] == [*values[:3], None, values[4]]
    assert [row["_error"] and row["_error"]["reason"] for row in found] == [
        "not_framed",
        "unknown_schema",
        "trailing_bytes",
        None,
        "truncated_frame",
    ]


def test_what_cannot_be_read_can_be_null_or_the_end(topic: Topic) -> None:
    topic.put(*broken(topic))
    assert table(topic.decoded, onError="null", columns="id").column(0).to_pylist() == [
        None, None, None, 1, None
    ]  # fmt: skip
    with pytest.raises(UnreadableRecord, match=f"{topic.name}-0 at offset 0: the value cannot"):
        table(topic.decoded, onError="fail")
    with pytest.raises(UnreadableRecord, match="not_framed"):
        table(topic.decoded, columns="_offset")


def test_a_reader_that_cannot_resolve_makes_rows_with_the_reason(topic: Topic) -> None:
    topic.put(*topic.orders(V1, 1))
    wants = avro({"name": "city", "type": "string"})
    found = table(topic.decoded, value="avro", readerSchema=wants).to_pylist()
    assert found[0]["_error"]["reason"] == "unresolvable"


def test_a_time_beyond_what_spark_holds_is_wrong_with_its_row_alone(topic: Topic) -> None:
    write = topic.serializer(V1)
    near = write.serialize({"id": 2, "at": 3}).content
    assert near is not None
    far = near[:-1] + b"\x80" * 8 + b"\x01"  # a year beyond 9999, as other clients may write it
    topic.put(far, near)
    found = table(topic.decoded).to_pylist()
    assert [row["id"] for row in found] == [None, 2]
    assert "does not fit its type" in found[0]["_error"]["detail"]
    assert found[0]["_value"] == far


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_opened(topic: Topic, codec: str) -> None:
    topic.put(*[b"x" * 200] * 50, settings={"compression.type": codec, "linger.ms": 100})
    assert table(topic.options).num_rows == 50


def test_aborted_records_are_hidden_unless_asked_for(topic: Topic) -> None:
    producer = Producer({"bootstrap.servers": topic.bootstrap, "transactional.id": topic.name})
    producer.init_transactions(20)
    for value, commits in ((b"gone", False), (b"kept", True)):
        producer.begin_transaction()
        producer.produce(topic.name, value, partition=0)
        producer.flush(20)  # an abort drops what was not sent
        (producer.commit_transaction if commits else producer.abort_transaction)(20)
    assert table(topic.options).column("value").to_pylist() == [b"kept"]
    dirty = table(topic.options, isolation="read_uncommitted")
    assert dirty.column("value").to_pylist() == [b"gone", b"kept"]


def test_bounds_by_offset_and_time_cut_a_batch(topic: Topic) -> None:
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


def test_offsets_beyond_the_end_are_refused_or_left_out(topic: Topic) -> None:
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
    with pytest.raises(Refused, match=f"says nothing of {topic.name}-0"):
        table(topic.options, startingOffsets=json.dumps({"other": {"0": 1}}))


def test_an_unknown_topic_is_named(bootstrap: str) -> None:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "nowhere"}
    with pytest.raises(Refused, match=r"topic 'nowhere'.*it does not exist"):
        table(options)


def test_partitions_and_patterns_choose_what_is_read(
    make_topic: Callable[..., str], bootstrap: str, registry: Registry
) -> None:
    topic = Topic(make_topic(3), bootstrap, registry)
    for partition in range(3):
        topic.put(b"%d" % partition, partition=partition)
    base = {"kafka.bootstrap.servers": bootstrap}
    chosen = table(base, assign=json.dumps({topic.name: [0, 2]}))
    assert chosen.column("value").to_pylist() == [b"0", b"2"]
    assert table(base, subscribePattern=f"{topic.name[:-1]}[{topic.name[-1]}]").num_rows == 3
    assert table(base, subscribePattern="none-such").num_rows == 0
    with pytest.raises(Refused, match=f"no partition {topic.name}-7"):
        table(base, assign=json.dumps({topic.name: [7]}))


def test_what_retention_has_passed_is_an_error_unless_told_otherwise(topic: Topic) -> None:
    topic.put(b"0", b"1", b"2", b"3")
    admin = AdminClient({"bootstrap.servers": topic.bootstrap})
    before = ClientPartition(topic.name, 0, 2)
    admin.delete_records([before])[before].result(20)
    from_start = json.dumps({topic.name: {"0": 0}})
    with pytest.raises(Refused, match=f"offset 0 is not in {topic.name}-0; it starts at 2"):
        table(topic.options, startingOffsets=from_start)
    found = table(topic.options, startingOffsets=from_start, failOnDataLoss="false")
    assert found.column("value").to_pylist() == [b"2", b"3"]


def test_a_corrupt_batch_is_named_by_its_offset(topic: Topic, broker: EmbeddedBroker) -> None:
    topic.put(b"fine")
    topic.put(b"rotten")
    (log,) = broker.folder.glob(f"**/{topic.name}-0/*.log")
    content = bytearray(log.read_bytes())
    content[content.index(b"rotten")] ^= 1
    with open(log, "r+b") as file:
        file.write(content)
    with pytest.raises(Refused, match=f"{topic.name}-0 has a corrupt batch at offset 1"):
        table(topic.options)


@pytest.mark.slow
def test_a_registry_that_is_away_is_an_error_that_says_where(topic: Topic) -> None:
    with EmbeddedRegistry(topic.bootstrap) as passing:
        values = topic.orders(V1, 1)
        topic.put(*values)
        options = {**topic.decoded, "registry": passing.url, "registryWaitMs": "1"}
        options |= {"value": "avro", "readerSchema": V1}  # so that the writer's is still unknown
        schema = read_schema(options)
        reader = batch_reader(options, schema)
        partitions = reader.partitions()
    with pytest.raises(UnreadableRecord, match=f"{topic.name}-0 from offset 0 on: the schema reg"):
        rows(reader, partitions, schema)
    with pytest.raises(RegistryUnavailableError, match=rf"could not be asked.*{topic.name}-value"):
        read_schema({**topic.decoded, "registry": "http://127.0.0.1:9"})


def test_a_registry_that_comes_back_in_mid_task_was_waited_for(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.put(*topic.orders(V1, 1))
    monkeypatch.setattr(decode_rows, "_PAUSE_FIRST_S", 0.001)
    asked: list[object] = []
    ask = Registry.schema

    def away_at_first(registry: Registry, key: SchemaKey) -> Any:
        asked.append(key)
        if len(asked) < 3:
            raise RegistryUnavailableError(registry.url, f"schema {key}", "connection refused")
        return ask(registry, key)

    monkeypatch.setattr(Registry, "schema", away_at_first)
    assert table(topic.decoded, columns="id,_error").column("id").to_pylist() == [1]
    assert len(asked) == 3


class CompactedLog:
    """Gives what a cluster gives of a partition that was compacted."""

    def __init__(self, *batch_serializers: bytearray) -> None:
        self._batches = batch_serializers

    def stream(self, operation: object) -> Iterator[Chunk]:
        for batch in self._batches:
            header = read_header(batch)
            ends = (Offset(header.end_offset),) * 3
            start = Offset(header.base_offset)
            yield Chunk(memoryview(batch), (), start, *ends, Offset(0))


def test_what_compaction_left_is_read_with_its_gaps(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.put(*[b"before compaction"] * 9)
    kept = [(0, 3, 4), (7,)]
    log = CompactedLog(
        *(build_batch([Record(offset=Offset(one), value=b"kept") for one in some]) for some in kept)
    )
    monkeypatch.setattr(read_task, "cluster", lambda properties: log)
    found = table(topic.options, endingOffsets=json.dumps({topic.name: {"0": 8}}))
    assert found.column("offset").to_pylist() == [0, 3, 4, 7]


def test_a_misspelt_topic_does_not_exist_also_where_a_registry_is_asked_first(
    topic: Topic,
) -> None:
    misspelt = {**topic.decoded, "subscribe": topic.name + "s"}
    told = f"topic {topic.name}s does not exist: did you mean {topic.name}"
    with pytest.raises(Refused, match=told) as refusal:
        read_schema(misspelt)
    assert refusal.value.code is ErrorCode.unknown_topic_or_partition
    with pytest.raises(Refused, match=told):
        read_schema({**misspelt, "value": "raw", "key": "auto"})


def test_a_wrong_broker_address_fails_within_the_time_for_first_contact(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "FIRST_CONTACT_MS", 200)
    wrong = {**topic.decoded, "kafka.bootstrap.servers": "127.0.0.1:9"}
    told = r"no broker answered within 200 ms: .*refused.*kafka.bootstrap.servers=127.0.0.1:9 right"
    with pytest.raises(UnreachableError, match=told):
        batch_reader({**wrong, "value": "raw"}, read_schema({**wrong, "value": "raw"})).partitions()
    with pytest.raises(UnreachableError, match=told):
        stream(wrong, value="raw")[0].initialOffset()
    with pytest.raises(UnreachableError, match=told):
        read_schema(wrong)  # no schema, so the topic is looked for
    with pytest.raises(UnreachableError, match=told):
        exactly_once(topic.name, bootstrap_servers="127.0.0.1:9")


def test_a_subject_without_a_schema_is_named(topic: Topic) -> None:
    with pytest.raises(Refused, match=f"Register a schema under {topic.name}-value"):
        read_schema(topic.decoded)
    topic.orders(V1, 1)
    with pytest.raises(
        Refused, match=f"subject {topic.name}-value is AVRO, option value says json"
    ):
        read_schema({**topic.decoded, "value": "json"})


def stream(options: dict[str, str], **more: str) -> tuple[Any, Any]:
    given = {**options, **more}
    schema = read_schema(given)
    return stream_reader(given, schema), schema


def moved(reader: Any, start: Any, limit: Any = None) -> Any:
    return reader.latestOffset(start, limit or ReadAllAvailable())


def test_a_stream_goes_from_offset_to_offset_and_shows_its_progress(topic: Topic) -> None:
    reader, schema = stream(topic.options, startingOffsets="earliest")
    start = reader.initialOffset()
    topic.put(b"a", b"b", b"c")
    first = moved(reader, start, ReadMaxRows(2))
    assert first["offsets"] == {topic.name: {"0": 2}}
    again = reader.partitions(start, first)
    assert rows(reader, again, schema).column("value").to_pylist() == [b"a", b"b"]
    assert [one.value for one in again] == [one.value for one in reader.partitions(start, first)]
    last = moved(reader, first)
    assert reader.partitions(last, last) == []
    assert moved(reader, last) == last
    with BlockingCluster(topic.bootstrap) as cluster:
        shown = cluster.run(committed_offsets(f"penstock.spark.{topic.name}"))
    assert [one.offset for one in shown.values()] == [3]


def test_limits_of_the_options_are_what_spark_is_told(topic: Topic) -> None:
    assert stream(topic.options)[0].getDefaultReadLimit() == ReadAllAvailable()
    rows_max = stream(topic.options, maxOffsetsPerTrigger="5")[0]
    assert rows_max.getDefaultReadLimit() == ReadMaxRows(5)
    bytes_max = stream(topic.options, maxBytesPerTrigger="5")[0]
    assert bytes_max.getDefaultReadLimit() == ReadMaxBytes(5)


def test_a_limit_of_bytes_is_kept_about(topic: Topic) -> None:
    topic.put(*[b"x" * 1000] * 100)
    reader, _ = stream(topic.options, startingOffsets="earliest")
    end = moved(reader, reader.initialOffset(), ReadMaxBytes(20_000))
    assert 10 <= end["offsets"][topic.name]["0"] <= 20


def test_available_now_ends_where_the_topic_ended_when_it_began(topic: Topic) -> None:
    reader, _ = stream(topic.options, startingOffsets="earliest")
    start = reader.initialOffset()
    topic.put(b"a")
    reader.prepareForTriggerAvailableNow()
    topic.put(b"b")
    end = moved(reader, start)
    assert end["offsets"] == {topic.name: {"0": 1}}
    assert moved(reader, end) == end


def test_partitions_that_are_added_are_read_from_their_start(topic: Topic) -> None:
    reader, schema = stream(topic.options)
    topic.put(b"before")
    start = reader.initialOffset()
    admin = AdminClient({"bootstrap.servers": topic.bootstrap})
    admin.create_partitions([NewPartitions(topic.name, 2)])[topic.name].result(20)
    topic.put(b"new", partition=1)
    end = moved(reader, start)
    found = rows(reader, reader.partitions(start, end), schema)
    assert found.column("value").to_pylist() == [b"new"]


def test_a_version_registered_in_mid_stream_needs_no_restart(topic: Topic) -> None:
    topic.put(*topic.orders(V1, 1))
    reader, schema = stream(topic.decoded, startingOffsets="earliest")
    start = reader.initialOffset()
    end = moved(reader, start)
    rows(reader, reader.partitions(start, end), schema)
    topic.put(*topic.orders(V2, 2))
    later = moved(reader, end)
    found = rows(reader, reader.partitions(end, later), schema)
    assert found.column("id").to_pylist() == [2]
    assert "note" not in found.column_names


def test_a_topic_deleted_and_made_again_is_refused_or_read_anew(topic: Topic) -> None:
    topic.put(b"a", b"b")
    reader, schema = stream(topic.options, startingOffsets="earliest")
    start = reader.initialOffset()
    end = moved(reader, start)
    planned = reader.partitions(start, end)
    topic.create_again()
    topic.put(b"c", b"d", b"e")
    with pytest.raises(Refused, match=f"{topic.name} was deleted and created again"):
        moved(reader, end)
    with pytest.raises(Refused, match=f"{topic.name} was deleted and created again"):
        rows(reader, planned, schema)
    bold, schema = stream(topic.options, failOnDataLoss="false")
    found = rows(bold, bold.partitions(end, moved(bold, end)), schema)
    assert found.column("value").to_pylist() == [b"c", b"d", b"e"]
    assert rows(bold, planned, schema).num_rows == 0  # a batch that was planned before


def test_a_worker_that_knows_the_deleted_topic_reads_the_one_created_again(topic: Topic) -> None:
    with ThreadPoolExecutor(1) as worker:  # a thread has its own metadata, as a process has

        def read() -> list[Any]:
            schema = read_schema(topic.options)
            reader = batch_reader(topic.options, schema)
            planned = reader.partitions()
            found = worker.submit(rows, reader, planned, schema).result()
            return found.column("value").to_pylist()

        topic.put(b"a", b"b")
        assert read() == [b"a", b"b"]
        topic.create_again()
        topic.put(b"c")
        assert read() == [b"c"]


def test_a_topic_that_is_gone_ends_a_task_or_is_left_out(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.put(b"a")
    reader, schema = stream(topic.options, startingOffsets="earliest")
    bold, _ = stream(topic.options, startingOffsets="earliest", failOnDataLoss="false")
    start = reader.initialOffset()
    planned = reader.partitions(start, moved(reader, start))
    topic.delete()
    with BlockingCluster(topic.bootstrap, LinkSettings(unknown_retry_ms=100)) as impatient:
        monkeypatch.setattr(read_task, "cluster", lambda _: impatient)
        with pytest.raises(Refused, match="with failOnDataLoss=false it goes on"):
            rows(reader, planned, schema)
        assert rows(bold, planned, schema).num_rows == 0


def test_a_query_created_again_has_the_columns_of_the_latest_version(topic: Topic) -> None:
    topic.put(*topic.orders(V1, 1))
    assert "note" not in read_schema(dict(topic.decoded)).names
    topic.put(*topic.orders(V2, 2))
    assert "note" in read_schema(dict(topic.decoded)).names


ITEM_FIRST = """syntax = "proto3"; package shop;
message Item { string name = 1; }
message Order { int64 id = 1; Item item = 2; }"""


def test_a_protobuf_topic_is_read_as_the_message_written_last_or_the_one_that_is_named(
    topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    def write(message: str) -> Serializer:
        contract = Contract(ITEM_FIRST, type=SchemaType.PROTOBUF, message=message)
        return Serializer(topic.registry, topic.name, contract)

    item = write("shop.Item").serialize({"name": "tea"}).content
    assert "name" in read_schema(dict(topic.decoded)).names, "the first while nothing is written"
    order = write("shop.Order").serialize({"id": 7, "item": {"name": "tea"}}).content
    topic.put(item, timestamp=1000)
    topic.put(order, b"rubbish", timestamp=2000)
    with caplog.at_level(logging.WARNING):
        found = table(topic.decoded, columns="id,_error").to_pylist()
    assert (
        "are of several messages (shop.Order, shop.Item); it is read as shop.Order" in caplog.text
    )
    assert [row["id"] for row in found] == [None, 7, None]
    assert "written as shop.Item, to be read as shop.Order" in found[0]["_error"]["detail"]
    for name in ("shop.Item", "Item"):
        named = table(topic.decoded, message=name, columns="name,_error").to_pylist()
        assert [row["name"] for row in named] == ["tea", None, None]
    with pytest.raises(Refused, match=f"{topic.name} has not; it has shop.Item, shop.Order"):
        read_schema({**topic.decoded, "message": "Basket"})
    text = {"value": "protobuf", "readerSchema": ITEM_FIRST, "columns": "id,_error"}
    assert table(topic.decoded, **text).column("id").to_pylist() == [None, 7, None]


def test_a_read_of_many_fields_without_columns_is_reminded_of_the_option_once(
    topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    wide = avro(*({"name": f"f{number}", "type": "long"} for number in range(8)))
    topic.serializer(wide).prepare()
    with caplog.at_level(logging.WARNING):
        for columns in ("*", "f1,f2"):
            read_schema({**topic.decoded, "columns": columns})
        assert caplog.messages == []
        names = [read_schema(dict(topic.decoded)).names for _ in range(2)]
    assert names[0] == names[1] == read_schema({**topic.decoded, "columns": "*"}).names
    (line,) = caplog.messages
    assert line.startswith(f"topic {topic.name}: all 8 fields are decoded and sent to Spark")


def test_a_message_is_named_for_protobuf_only(topic: Topic) -> None:
    topic.orders(V1, 1)
    with pytest.raises(Refused, match="option message is Order, but no schema is Protobuf"):
        read_schema({**topic.decoded, "message": "Order"})


PROTOBUF = 'syntax = "proto3"; message Order { int64 id = 1; uint32 pieces = 2; }'
JSON_SCHEMA = json.dumps(
    {
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "pieces": {"type": "integer"}},
        "required": ["id"],
    }
)


@pytest.mark.parametrize(
    ("coding", "schema"), [(SchemaType.PROTOBUF, PROTOBUF), (SchemaType.JSON, JSON_SCHEMA)]
)
def test_protobuf_and_json_are_columns_as_avro_is(
    topic: Topic, coding: SchemaType, schema: str
) -> None:
    write = Serializer(topic.registry, topic.name, Contract(schema, type=coding))
    topic.put(write.serialize({"id": 7, "pieces": 3}).content, b"rubbish")
    for told in ("auto", coding.lower()):
        found = table(topic.decoded, value=told, columns="pieces,id,_error").to_pylist()
        assert (found[0]["id"], found[0]["pieces"]) == (7, 3)
        assert found[1]["_error"]["reason"] == "not_framed"
