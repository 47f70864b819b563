"""Many processes that start at the same time with empty caches: how often is the registry asked?"""

import time
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from penstock.client.registry import Registry
from penstock.lab.lab_processes import lab_processes
from penstock.lab.lab_result import LabPlot, LabResult
from penstock.lab.lab_run import LabRun, quantile
from penstock.lab.order_events import order_event
from penstock.lab.order_schemas import VERSIONS, contract_of
from penstock.schemas.model import SchemaType
from penstock.serde.serializers import Serializer

_QUESTION: Final = "What does the registry see when many producers start cold at the same moment?"
_PEAK_S: Final = 0.1
_VERSIONS: Final = ("v1", "v2", "v3")  # schemas that each producer writes with


class _Started(NamedTuple):
    """What one process saw, in seconds after it was let go."""

    first_event_s: float
    request_ends_s: list[float]  # on the clock that all processes share
    requests: int  # until all schemas were known
    later_requests: int


def run_stampede(lab: LabRun) -> LabResult:
    """Start the processes, and count their requests."""
    count = lab.sized(quick=4, default=24)
    later = lab.sized(quick=50, default=1_000)
    result = lab.result(_QUESTION, processes=count, schemas=len(_VERSIONS), later_events=later)
    context = lab_processes()
    start, rows = context.Barrier(count), context.Queue()
    arguments = (lab.platform.registry_url, lab.seed, later, start, rows)
    processes = [context.Process(target=_produce, args=arguments) for _ in range(count)]
    for process in processes:
        process.start()
    started = [rows.get(timeout=300) for _ in lab.steps("processes", range(count))]
    for process in processes:
        process.join()
    first = [one.first_event_s * 1000 for one in started]
    requests = sum(one.requests for one in started)
    ends_s = [end_s for one in started for end_s in one.request_ends_s]
    peak = peak_per_second(ends_s, _PEAK_S)
    limit = count * len(_VERSIONS)
    result.claim(
        f"at most processes x schemas = {limit} requests", f"{requests}", requests <= limit
    )
    silent = sum(one.later_requests for one in started)
    result.claim(
        f"no request for the next {count * later:,} events", f"{silent} requests", silent == 0
    )
    result.table(
        "The stampede",
        ("measure", "value"),
        [
            ("requests", requests),
            (f"peak requests/s, of the busiest {_PEAK_S:g} s", f"{peak:,.0f}"),
            ("requests/s from the first response to the last", f"{_mean(ends_s):,.0f}"),
            ("first event, p50", f"{quantile(first, 0.5):.0f} ms"),
            ("first event, p99", f"{quantile(first, 0.99):.0f} ms"),
        ],
    )
    ordered = sorted(first)
    points = [(value, (rank + 1) / count * 100) for rank, value in enumerate(ordered)]
    result.plots.append(
        LabPlot("Processes that have written their first event", "%", {"processes": points}, "ms")
    )
    result.numbers |= {
        "processes": count, "requests": requests, "limit": limit, "later_requests": silent,
        "first_event_p99_ms": round(quantile(first, 0.99)), "peak_requests_s": round(peak),
    }  # fmt: skip
    return result


def peak_per_second(times_s: Sequence[float], window_s: float) -> float:
    """The rate in the window of this length with the most of them."""
    ordered = sorted(times_s)
    counts = [
        bisect_right(ordered, at + window_s) - at_index for at_index, at in enumerate(ordered)
    ]
    return max(counts, default=0) / window_s


def _mean(times_s: Sequence[float]) -> float:
    span_s = max(times_s) - min(times_s)
    return len(times_s) / span_s if span_s else float(len(times_s))


def _produce(url: str, seed: int, later: int, start: Any, rows: Any) -> None:
    with Registry(url) as registry:
        serializers = [
            (Serializer(registry, "stampede", contract_of(shape, SchemaType.AVRO)), shape)
            for shape in map(VERSIONS.__getitem__, _VERSIONS)
        ]
        events = [order_event(shape, seed, 1) for _, shape in serializers]
        start.wait()
        started_s = time.monotonic()
        ends_s: list[float] = []
        first_event_s = 0.0
        for (serializer, _), event in zip(serializers, events, strict=True):
            before = registry.request_stats.requests
            serializer.serialize(event)
            ends_s += [time.monotonic()] * (registry.request_stats.requests - before)
            first_event_s = first_event_s or time.monotonic() - started_s
        requests = registry.request_stats.requests
        for number in range(later):
            index = number % len(serializers)
            serializers[index][0].serialize(events[index])
        after = registry.request_stats.requests - requests
        rows.put(_Started(first_event_s, ends_s, requests, after))
