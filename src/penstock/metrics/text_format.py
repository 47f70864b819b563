"""Prometheus' text format, written in pieces so that a scrape can be spread over several turns."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from penstock.metrics.histogram import Histogram
from penstock.metrics.row import MetricRow, MetricType

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

# The values of the labels, in the row's order, and the value.
Sample: TypeAlias = tuple[Sequence[str], float | Histogram]
Family: TypeAlias = tuple[MetricRow, Iterable[Sample]]

_ESCAPED: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def write_families(families: Iterable[Family | None]) -> Iterator[str]:
    """The text, one sample or heading at a time, and an empty piece where there was None."""
    for family in families:
        if family is None:
            yield ""
            continue
        row, samples = family
        yield f"# HELP {row.name} {row.help}\n# TYPE {row.name} {row.kind}\n"
        for values, value in samples:
            labels = [
                f'{label}="{text.translate(_ESCAPED)}"'
                for label, text in zip(row.labels, values, strict=True)
            ]
            if isinstance(value, Histogram):
                assert row.kind is MetricType.HISTOGRAM
                yield _write_histogram(row.name, labels, value)
            else:
                yield f"{row.name}{_braced(labels)} {_number(value)}\n"


def _write_histogram(name: str, labels: list[str], histogram: Histogram) -> str:
    lines, count = [], 0
    for bound, amount in zip((*histogram.bounds, None), histogram.counts, strict=True):
        count += amount
        limit = "+Inf" if bound is None else _number(bound)
        bucket = [*labels, f'le="{limit}"']
        lines.append(f"{name}_bucket{_braced(bucket)} {count}\n")
    lines.append(f"{name}_sum{_braced(labels)} {_number(histogram.total)}\n")
    lines.append(f"{name}_count{_braced(labels)} {count}\n")
    return "".join(lines)


def _braced(labels: list[str]) -> str:
    return f"{{{','.join(labels)}}}" if labels else ""


def _number(value: float) -> str:
    if value == int(value):
        return str(int(value))
    return repr(value)
