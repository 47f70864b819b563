"""OpenTelemetry: trace context in the headers of records, and spans of what a program does.

    tracing = Tracing()
    with Producer("127.0.0.1:9092", "orders", tracing=tracing) as producer: ...

    send      what a producer sends; the headers of its records name this span
    receive   what `take` returns, with links to the spans that sent it
    process   while the program handles what an iteration gave it

Needs the extra `otel`. A client without a `Tracing` imports nothing of OpenTelemetry. Which spans
are recorded is up to the sampler of the program's tracer provider.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final

from penstock.extras import require
from penstock.version import __version__

if TYPE_CHECKING:
    from concurrent.futures import Future

    from opentelemetry.trace import Link, Span, TracerProvider

    from penstock.client.delivery import RecordMetadata
    from penstock.client.event import Event

LINKS_MAX: Final = 32  # of a span: a sample of the records, evenly spaced
TRACE_PARENT: Final = "traceparent"
_SYSTEM: Final = {"messaging.system": "kafka"}
RecordHeaders = Sequence[tuple[str, bytes | None]]


class Tracing:
    """How clients take part in traces. `provider` is OpenTelemetry's; by default the global one."""

    def __init__(self, provider: "TracerProvider | None" = None) -> None:
        require("otel")
        from opentelemetry import trace

        from penstock.client import trace_headers

        self._trace = trace
        self._headers = trace_headers
        self._tracer = trace.get_tracer("penstock", __version__, provider)

    def process(self, events: "Event | Sequence[Event]") -> AbstractContextManager[Any]:
        """The span of handling events that `take` returned: `with tracing.process(events): …`.

        Handling one event continues the trace that it was sent in; handling several has links.
        """
        if isinstance(events, Sequence):
            topic = events[0].topic if events else ""
            return self.batch_span(topic, [event.headers for event in events])
        where = {
            "messaging.destination.partition.id": str(events.partition),
            "messaging.kafka.offset": events.offset,
        }
        return self._tracer.start_as_current_span(
            f"process {events.topic}",
            self._headers.read_context(events.headers),
            self._trace.SpanKind.CONSUMER,
            _attributes("process", events.topic, where),
        )

    def batch_span(
        self, topic: str, headers: Sequence[RecordHeaders], count: int | None = None
    ) -> AbstractContextManager[Any]:
        """The span of handling records; `count` is given if `headers` are only a sample of them."""
        return self._tracer.start_as_current_span(
            f"process {topic}",
            kind=self._trace.SpanKind.CONSUMER,
            attributes=_attributes("process", topic, _batch(headers if count is None else count)),
            links=self.links(headers),
        )

    def received(
        self,
        topic: str,
        headers: Sequence[RecordHeaders],
        began_ns: int,
        count: int | None = None,
    ) -> None:
        """Record that these came, after a wait that began then (Unix time)."""
        span = self._tracer.start_span(
            f"receive {topic}",
            kind=self._trace.SpanKind.CLIENT,
            attributes=_attributes("receive", topic, _batch(headers if count is None else count)),
            links=self.links(headers),
            start_time=began_ns,
        )
        span.end(time.time_ns())

    def start_send(self, topic: str) -> "Span":
        """A span for records that are sent; the caller ends it."""
        return self._tracer.start_span(
            f"send {topic}",
            kind=self._trace.SpanKind.PRODUCER,
            attributes=_attributes("send", topic, {}),
        )

    @contextmanager
    def sending(self, topic: str) -> "Iterator[Span]":
        """The span of a block that sends records; an error inside is recorded."""
        span = self.start_send(topic)
        with self._trace.use_span(span, end_on_exit=True):
            yield span

    def headers_of(self, span: "Span") -> list[tuple[str, bytes]]:
        """The headers that name a span."""
        return self._headers.write_context(self._trace.set_span_in_context(span))

    def added_to(self, headers: RecordHeaders, span: "Span") -> RecordHeaders:
        """Headers with those that name a span, unless they name one."""
        if any(name == TRACE_PARENT for name, _ in headers):
            return headers
        return [*headers, *self.headers_of(span)]

    def set_count(self, span: "Span", count: int) -> None:
        """Set how many records a span is about."""
        span.set_attributes(_batch(count))

    def start_micro_batch(
        self, topics: Iterable[str], count: int, headers: Iterable[RecordHeaders]
    ) -> "Span":
        """The span of a micro-batch of Spark; `headers` are read only if it is recorded."""
        name = ",".join(sorted(topics))
        span = self._tracer.start_span(
            f"process {name}",
            kind=self._trace.SpanKind.CONSUMER,
            attributes=_attributes("process", name, _batch(count)),
        )
        if span.is_recording():
            for link in self.links(list(headers)):
                span.add_link(link.context, link.attributes)
        return span

    def links(self, headers: Sequence[RecordHeaders]) -> "list[Link]":
        """Links to the spans that sent a sample of these records, each span once."""
        links: dict[int, Link] = {}
        for row in sampled_rows(len(headers)):
            context = self._headers.read_context(headers[row])
            sender = self._trace.get_current_span(context).get_span_context()
            if sender.is_valid:
                links[sender.span_id] = self._trace.Link(sender)
        return list(links.values())

    def end_send(self, span: "Span", delivery: "Future[RecordMetadata]") -> None:
        """End the span of one record with where it was written, or with the error."""
        error = delivery.exception()
        if error is not None:
            self.fail(span, error)
            return
        metadata = delivery.result()
        span.set_attribute("messaging.destination.partition.id", str(metadata.partition))
        span.set_attribute("messaging.kafka.offset", metadata.offset)
        span.end()

    def fail(self, span: "Span", error: BaseException) -> None:
        """End a span with an error."""
        span.record_exception(error)
        span.set_status(self._trace.StatusCode.ERROR, str(error))
        span.end()


def sampled_rows(count: int) -> list[int]:
    """At most LINKS_MAX of `count` rows, evenly spaced."""
    if count <= LINKS_MAX:
        return list(range(count))
    return [row * count // LINKS_MAX for row in range(LINKS_MAX)]


def _attributes(operation: str, topic: str, others: Mapping[str, Any]) -> dict[str, Any]:
    """The names of OpenTelemetry's conventions for messaging."""
    return {
        **_SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
        **others,
    }


def _batch(records: Sequence[object] | int) -> dict[str, int]:
    count = records if isinstance(records, int) else len(records)
    return {"messaging.batch.message_count": count}
