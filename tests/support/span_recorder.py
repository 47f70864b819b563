"""Spans that a test made: of a provider of its own, or of the process' global one."""

from functools import cache

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext


class SpanRecorder:
    """A tracer provider and what it has recorded."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]


@cache
def global_recorder() -> SpanRecorder:
    """The recorder of the global provider, which a process sets once."""
    recorder = SpanRecorder()
    trace.set_tracer_provider(recorder.provider)
    return recorder


def context_of(span: ReadableSpan) -> SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context


def ids(spans: list[ReadableSpan]) -> set[int]:
    return {context_of(span).span_id for span in spans}


def linked(span: ReadableSpan) -> set[int]:
    return {link.context.span_id for link in span.links}
