"""Trace context in record headers, as OpenTelemetry's propagators read and write it.

Imports OpenTelemetry: load it only after `extras.require("otel")`.
"""

from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.propagate import extract, inject
from opentelemetry.propagators.textmap import Getter, Setter

RecordHeaders = Sequence[tuple[str, bytes | None]]


class _HeaderSetter(Setter[list[tuple[str, bytes]]]):
    def set(self, carrier: list[tuple[str, bytes]], key: str, value: str) -> None:
        carrier.append((key, value.encode()))


class _HeaderGetter(Getter[RecordHeaders]):
    """What is not text is replaced, and so names no span."""

    def get(self, carrier: RecordHeaders, key: str) -> list[str] | None:
        values = [
            value.decode(errors="replace")
            for name, value in carrier
            if name.lower() == key and value is not None
        ]
        return values or None

    def keys(self, carrier: RecordHeaders) -> list[str]:
        return [name for name, _ in carrier]


_SETTER = _HeaderSetter()
_GETTER = _HeaderGetter()


def write_context(context: Context) -> list[tuple[str, bytes]]:
    """The headers that name the span of a context."""
    headers: list[tuple[str, bytes]] = []
    inject(headers, context, _SETTER)
    return headers


def read_context(headers: RecordHeaders) -> Context:
    """The context that headers name; an empty one if they name none."""
    return extract(headers, Context(), _GETTER)
