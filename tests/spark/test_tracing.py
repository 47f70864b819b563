"""Traces of micro-batches: a span for each, linked to the senders, and named by what it writes."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.client import Consumer, Producer, Tracing
from penstock.errors import Refused
from penstock.spark import WriteRequest, exactly_once
from penstock.spark.encode_rows import with_trace
from penstock.spark.stream_tracing import RANGES_MAX, RECORDS_MAX
from tests.support.platform_fixtures import MakeTopic
from tests.support.source_topic import SourceTopic, moved, stream
from tests.support.span_recorder import SpanRecorder, global_recorder, ids, linked

SET_UP = "tests.support.span_recorder:global_recorder"
SPAN = (("traceparent", b"00-1"), ("tracestate", b"a=1"))
HEADERS: Any = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def test_each_micro_batch_is_a_span_with_links_to_the_senders_of_its_records(
    topic: SourceTopic,
) -> None:
    recorder = global_recorder()
    reader, _ = stream(topic.options, startingOffsets="earliest", tracing=SET_UP)
    start = reader.initialOffset()
    with Producer(topic.bootstrap, topic.name, tracing=Tracing(recorder.provider)) as producer:
        for _ in range(2):
            producer.send(b"x").result(30)
    topic.put(b"not traced")
    end = moved(reader, start)
    name = f"process {topic.name}"
    reader.partitions(start, end)
    assert recorder.spans(name) == []
    assert moved(reader, end) == end  # Spark looks for more records once the batch is done
    (span,) = recorder.spans(name)
    assert linked(span) == ids(recorder.spans(f"send {topic.name}"))
    assert span.attributes is not None
    assert span.attributes["messaging.batch.message_count"] == 3
    reader.partitions(end, end)  # empty: no span
    topic.put(*[b"y"] * 10)
    reader.partitions(end, moved(reader, end))
    reader.stop()
    assert len(recorder.spans(name)) == 2


def test_links_are_a_small_sample(make_topic: MakeTopic, topic: SourceTopic) -> None:
    recorder = global_recorder()
    topic.name = make_topic(2 * RANGES_MAX)
    topic.options["subscribe"] = topic.name
    with Producer(topic.bootstrap, topic.name, tracing=Tracing(recorder.provider)) as producer:
        for number in range(8 * RANGES_MAX * RECORDS_MAX):
            producer.send(b"x", partition=number % (2 * RANGES_MAX))
        producer.flush()
    reader, _ = stream(topic.options, startingOffsets="earliest", tracing=SET_UP)
    start = reader.initialOffset()
    reader.partitions(start, moved(reader, start))
    reader.stop()
    (span,) = recorder.spans(f"process {topic.name}")
    assert len(linked(span)) == RANGES_MAX * RECORDS_MAX


def test_a_function_that_does_not_exist_is_refused(topic: SourceTopic) -> None:
    reader, _ = stream(topic.options, startingOffsets="earliest", tracing="penstock.none:x")
    start = reader.initialOffset()
    topic.put(b"x")
    with pytest.raises(Refused, match=r"tracing is .penstock\.none:x., not module:function"):
        reader.partitions(start, moved(reader, start))


@pytest.mark.parametrize("kind", [HEADERS, pa.large_list(HEADERS.value_type)])
def test_headers_of_a_span_are_added_where_a_row_names_none(kind: Any) -> None:
    own = {"key": "traceparent", "value": b"00-2"}
    other = {"key": "n", "value": None}
    column = pa.array([[other], None, [own, other], []], kind)
    added = [{"key": name, "value": value} for name, value in SPAN]
    expected = [[other, *added], added, [own, other], added]
    assert with_trace(column, 4, SPAN).to_pylist() == expected
    assert with_trace(column.slice(1, 2), 2, SPAN).to_pylist() == expected[1:3]
    assert with_trace(None, 2, SPAN).to_pylist() == [added, added]
    assert with_trace(column.slice(0, 0), 0, SPAN).to_pylist() == []


def test_records_of_a_micro_batch_name_its_span(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, recorder = make_topic(2), SpanRecorder()
    frame = spark.range(20).selectExpr("string(id) AS key", "string(id) AS value")
    frame.write.json(str(tmp_path / "input"))
    read = spark.readStream.schema("key string, value string").json(str(tmp_path / "input"))
    sink = exactly_once(
        WriteRequest(topic, bootstrap=bootstrap), tracing=Tracing(recorder.provider)
    )
    writer = read.writeStream.foreachBatch(sink).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    (span,) = recorder.spans(f"send {topic}")
    assert span.attributes is not None
    assert span.attributes["penstock.batch.id"] == 0
    with Consumer(bootstrap, topic, topic, tracing=Tracing(recorder.provider)) as consumer:
        assert len(list(consumer.events(idle_s=3))) == 20
    handled = recorder.spans(f"process {topic}")
    assert {each.parent.span_id for each in handled if each.parent} == ids([span])
