"""Traces: what a consumer does continues, or links to, the spans of those who sent the events."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode, TraceFlags

from penstock.client import (
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    Contract,
    EncodeError,
    Producer,
    Registry,
    Tracing,
)
from penstock.client.tracing import LINKS_MAX, sampled_rows
from tests.support.span_recorder import SpanRecorder, context_of, ids, linked

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
SOON_S = 30


@pytest.fixture
def recorder() -> Iterator[SpanRecorder]:
    recorder = SpanRecorder()
    yield recorder
    recorder.provider.shutdown()


@pytest.fixture
def tracing(recorder: SpanRecorder) -> Tracing:
    return Tracing(recorder.provider)


def test_handling_an_event_continues_the_trace_of_its_sender(
    topic: str, bootstrap: str, tracing: Tracing, recorder: SpanRecorder
) -> None:
    with Producer(bootstrap, topic, tracing=tracing) as producer:
        written = producer.send(b"x", headers=[("own", b"1")]).result(SOON_S)
    current = []
    with Consumer(bootstrap, topic, topic, tracing=tracing) as consumer:
        for event in consumer.events(idle_s=SOON_S):
            current.append(trace.get_current_span().get_span_context().span_id)
            assert [name for name, _ in event.headers] == ["own", "traceparent"]
            break
    (sent,), (handled,) = recorder.spans(f"send {topic}"), recorder.spans(f"process {topic}")
    assert (sent.kind, handled.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert context_of(handled).trace_id == context_of(sent).trace_id
    assert handled.parent is not None
    assert {handled.parent.span_id} == ids([sent])
    assert current == list(ids([handled]))
    for span in (sent, handled):
        assert span.attributes is not None
        assert span.attributes["messaging.destination.name"] == topic
        assert span.attributes["messaging.kafka.offset"] == written.offset
    assert not trace.get_current_span().get_span_context().is_valid


def test_batches_link_to_the_spans_that_sent_them(
    topic: str, bootstrap: str, registry: Registry, tracing: Tracing, recorder: SpanRecorder
) -> None:
    value = Contract(ORDER)
    with Producer(bootstrap, topic, registry=registry, value=value, tracing=tracing) as producer:
        producer.send({"id": 1}).result(SOON_S)
        producer.send_many([{"id": 2}, {"id": 3}]).wait(SOON_S)
    senders = ids(recorder.spans(f"send {topic}"))
    assert len(senders) == 2
    readers: dict[str, Callable[[Consumer], object]] = {
        "process": lambda consumer: next(consumer.batches(idle_s=SOON_S)),
        "receive": lambda consumer: consumer.take(wait_s=SOON_S),
        "process ": lambda consumer: next(consumer.arrow_batches(idle_s=SOON_S)),
        "receive ": lambda consumer: consumer.take_arrow(wait_s=SOON_S),
    }
    for number, (name, read) in enumerate(readers.items()):
        recorder.exporter.clear()
        with Consumer(
            bootstrap, topic, f"{topic}-{number}", registry=registry, tracing=tracing
        ) as consumer:
            assert len(read(consumer)) == 3  # type: ignore[arg-type]  # a list or a batch
        (span,) = recorder.spans(f"{name.strip()} {topic}")
        assert linked(span) == senders
        assert span.attributes is not None
        assert span.attributes["messaging.batch.message_count"] == 3


def test_asyncio_programs_trace_in_the_same_way(
    topic: str, bootstrap: str, tracing: Tracing, recorder: SpanRecorder
) -> None:
    async def run() -> None:
        async with AsyncProducer(bootstrap, topic, tracing=tracing) as producer:
            await producer.send(b"x")
        async with AsyncConsumer(bootstrap, topic, topic, tracing=tracing) as consumer:
            (event,) = await consumer.take(wait_s=SOON_S)
            with tracing.process(event):
                await asyncio.sleep(0)

    asyncio.run(run())
    (sent,), (received,) = recorder.spans(f"send {topic}"), recorder.spans(f"receive {topic}")
    (handled,) = recorder.spans(f"process {topic}")
    assert linked(received) == ids([sent])
    assert handled.parent is not None
    assert {handled.parent.span_id} == ids([sent])


def test_an_error_ends_its_span(
    topic: str, bootstrap: str, registry: Registry, tracing: Tracing, recorder: SpanRecorder
) -> None:
    with Producer(
        bootstrap, topic, registry=registry, value=Contract(ORDER), tracing=tracing
    ) as producer:
        with pytest.raises(EncodeError):
            producer.send({"id": "x"})
        with pytest.raises(EncodeError):
            producer.send_many([{"id": "x"}])
    spans = recorder.spans(f"send {topic}")
    assert [span.status.status_code for span in spans] == [StatusCode.ERROR] * 2


def test_a_record_that_names_a_span_keeps_it(
    topic: str, bootstrap: str, tracing: Tracing, recorder: SpanRecorder
) -> None:
    own = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    with Producer(bootstrap, topic, tracing=tracing) as producer:
        producer.send(b"x", headers=[own]).result(SOON_S)
        producer.send(b"y", headers=[("traceparent", b"\xff"), ("n", None)]).result(SOON_S)
    with Consumer(bootstrap, topic, topic, tracing=tracing) as consumer:
        first, second = (event.headers for _, event in zip(range(2), consumer, strict=False))
    assert first == (own,)
    assert second == (("traceparent", b"\xff"), ("n", None))
    handled = recorder.spans(f"process {topic}")
    assert handled[0].parent is not None
    assert handled[0].parent.span_id == 0xB7AD6B7169203331
    assert handled[1].parent is None


def test_the_context_of_a_span_that_is_not_sampled_is_sent_too(topic: str, bootstrap: str) -> None:
    tracing = Tracing(TracerProvider(sampler=ALWAYS_OFF))
    with Producer(bootstrap, topic, tracing=tracing) as producer:
        producer.send(b"x").result(SOON_S)
    with Consumer(bootstrap, topic, topic) as consumer:
        ((_, context),) = consumer.take(wait_s=SOON_S)[0].headers
    assert context is not None
    assert int(context[-2:], 16) & TraceFlags.SAMPLED == 0


def test_a_sample_of_rows_is_evenly_spaced() -> None:
    assert sampled_rows(3) == [0, 1, 2]
    rows = sampled_rows(10 * LINKS_MAX)
    assert rows == list(range(0, 10 * LINKS_MAX, 10))


def test_clients_without_tracing_load_nothing_of_opentelemetry() -> None:
    program = "from penstock import Producer, Consumer; import sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "penstock.client.consumer" in loaded.stdout
    assert "opentelemetry" not in loaded.stdout
