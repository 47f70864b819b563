"""What a contract costs per event: with caches, without them, and against raw bytes."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from penstock.client.registry import Registry
from penstock.lab.lab_result import LabPlot, LabResult
from penstock.lab.lab_run import LabRun, quantile
from penstock.lab.order_events import order_events
from penstock.lab.order_schemas import V1, contract_of, schema_text
from penstock.schemas.model import SchemaType
from penstock.serde.batch_serializers import BatchDeserializer, BatchSerializer
from penstock.serde.frame import SchemaId
from penstock.serde.serializers import Deserializer, Serializer

_BATCH: Final = 500
_QUESTION: Final = (
    "How much time does a contract cost per event, and how often is the registry asked?"
)
_US: Final = 1e6


def run_overhead(lab: LabRun) -> LabResult:
    """Measure single events, batches, caches and look-ups."""
    result = lab.result(_QUESTION, batch=_BATCH, version="v1", format="AVRO")
    rows = list(order_events(V1, lab.seed, 2_000))
    with lab.platform.registry() as registry:
        _paths(lab, result, registry, rows)
        _caches(lab, result, registry)
    _cold_lookups(lab, result)
    return result


def _paths(lab: LabRun, result: LabResult, registry: Registry, rows: list[dict[str, Any]]) -> None:
    topic, contract = "overhead", contract_of(V1, SchemaType.AVRO)
    serializer = Serializer(registry, topic, contract)
    deserializer = Deserializer(registry, topic, reader=contract, as_dicts=True)
    many_out = BatchSerializer(registry, topic, contract)
    many_in = BatchDeserializer(registry, topic, reader=contract)
    framed = [serializer.serialize(row).content or b"" for row in rows]
    parts = [rows[at : at + _BATCH] for at in range(0, len(rows), _BATCH)]
    framed_parts = [framed[at : at + _BATCH] for at in range(0, len(framed), _BATCH)]
    rounds = lab.sized(quick=2, default=30)
    paths: dict[str, tuple[Callable[[Any], Any], Sequence[Any], int]] = {
        "raw bytes, one by one": (_copied, framed, 1),
        "encode, one by one": (serializer.serialize, rows, 1),
        "decode, one by one": (deserializer.deserialize, framed, 1),
        "encode, batches": (many_out.serialize_many, parts, _BATCH),
        "decode, batches": (many_in.deserialize_many, framed_parts, _BATCH),
    }
    table, medians = [], {}
    for name in lab.steps("paths", list(paths)):
        work, inputs, events = paths[name]
        work(inputs[0])  # what is compiled once is compiled
        times = _timed(work, inputs, rounds)
        per_event = [spent / events * _US for spent in times]
        median, high = quantile(per_event, 0.5), quantile(per_event, 0.99)
        medians[name] = median
        table.append((name, f"{median:.2f}", f"{high:.2f}", f"{_US / median:,.0f}"))
        result.numbers[name] = {"p50_us": round(median, 2), "p99_us": round(high, 2)}
    result.table("Processor time per event", ("path", "p50 us", "p99 us", "events/s"), table)
    result.plots.append(
        LabPlot(
            "Median processor time per event",
            "us",
            {name: [(0, at)] for name, at in medians.items()},
        )
    )
    for direction in ("encode", "decode"):
        numbers = result.numbers[f"{direction}, batches"]
        measured = f"{numbers['p50_us']} us and {numbers['p99_us']} us"
        holds = numbers["p50_us"] < 8 and numbers["p99_us"] < 30
        result.claim(
            f"{direction} in batches takes less than 8 us (median) and 30 us (p99) per event",
            measured, holds, is_speed=True,
        )  # fmt: skip


def _copied(content: bytes) -> bytes:
    return bytes(memoryview(content))  # `bytes(content)` would be the same object


def _timed(work: Callable[[Any], Any], inputs: Sequence[Any], rounds: int) -> list[float]:
    """Processor time of each call: what other programs take in between does not count."""
    times = []
    for _ in range(rounds):
        for one in inputs:
            start_s = time.thread_time()
            work(one)
            times.append(time.thread_time() - start_s)
    return times


def _caches(lab: LabRun, result: LabResult, registry: Registry) -> None:
    """Events with caches on and off; look-ups of a known id."""
    known = SchemaId(int(registry.register("overhead-value", schema_text(V1, SchemaType.AVRO)).id))
    count = lab.sized(quick=20_000, default=200_000)
    lab.show("look-ups", 0, 1)
    warm = _timed(lambda _one: registry.schema(known), range(count), 1)
    warm_ms = quantile(warm, 0.99) * 1000
    result.claim(
        "a warm look-up takes less than 1 ms (p99)", f"{warm_ms:.4f} ms", warm_ms < 1, is_speed=True
    )
    rows = list(order_events(V1, lab.seed, lab.sized(quick=20, default=200)))
    cached = _cached(lab, rows, lab.sized(quick=12_000, default=100_000))
    measured = f"{cached.hit_ratio:.6f} of {cached.look_ups:,} in {cached.events:,} events"
    result.claim(
        "while events are written and read, more than 99.99 % of look-ups hit the cache",
        measured, cached.hit_ratio > 0.9999,
    )  # fmt: skip
    uncached = _uncached(lab, rows)
    result.table(
        "Events written and read, with caches and without",
        ("caches", "events/s", "registry requests/s", "requests per event"),
        [
            (name, f"{one.events / one.seconds:,.0f}", f"{one.requests / one.seconds:,.1f}",
             f"{one.requests / one.events:.5f}")
            for name, one in (("on", cached), ("off", uncached))
        ],
    )  # fmt: skip
    result.numbers["uncached_events_s"] = round(uncached.events / uncached.seconds)
    result.numbers |= {"hit_ratio": cached.hit_ratio, "warm_p99_ms": round(warm_ms, 4)}


class _Exchange(NamedTuple):
    """Events that were written and read one by one."""

    events: int
    seconds: float
    requests: int
    look_ups: int
    hits: int

    @property
    def hit_ratio(self) -> float:
        return self.hits / self.look_ups if self.look_ups else 0.0


def _cached(lab: LabRun, rows: Sequence[Any], events: int) -> _Exchange:
    """One client for all events, from its first."""
    contract = contract_of(V1, SchemaType.AVRO)
    with lab.platform.registry() as registry:
        serializer = Serializer(registry, "overhead", contract)
        deserializer = Deserializer(registry, "overhead", reader=contract, as_dicts=True)
        start_s = time.perf_counter()
        for number in range(events):
            deserializer.deserialize(serializer.serialize(rows[number % len(rows)]).content)
        seconds = time.perf_counter() - start_s
        stats = registry.cache_stats.values()
        hits = sum(one.hits for one in stats)
        look_ups = hits + sum(one.loads + one.waits for one in stats)
        return _Exchange(events, seconds, registry.request_stats.requests, look_ups, hits)


def _uncached(lab: LabRun, rows: Sequence[Any]) -> _Exchange:
    """A new client for every event: it asks each time."""
    contract = contract_of(V1, SchemaType.AVRO)
    start_s, requests = time.perf_counter(), 0
    for row in rows:
        with lab.platform.registry() as cold:
            content = Serializer(cold, "overhead", contract).serialize(row).content
            Deserializer(cold, "overhead", reader=contract, as_dicts=True).deserialize(content)
            requests += cold.request_stats.requests
    return _Exchange(len(rows), time.perf_counter() - start_s, requests, 0, 0)


def _cold_lookups(lab: LabRun, result: LabResult) -> None:
    """The first look-up of an id in a process, and that there is no second request for it."""
    times, requests = [], []
    with lab.platform.registry() as writer:
        known = SchemaId(
            int(writer.register("overhead-value", schema_text(V1, SchemaType.AVRO)).id)
        )
    for _ in lab.steps("cold look-ups", range(lab.sized(quick=5, default=40))):
        with lab.platform.registry() as cold:
            start_s = time.perf_counter()
            cold.schema(known)
            times.append((time.perf_counter() - start_s) * 1000)
            for _again in range(100):
                cold.schema(known)
            requests.append(cold.request_stats.requests)
    median, slowest = quantile(times, 0.5), max(times)
    result.claim(
        "a cold look-up takes less than 25 ms", f"{median:.1f} ms (median), {slowest:.1f} ms (max)",
        slowest < 25, is_speed=True,
    )  # fmt: skip
    result.claim(
        "an id is requested once per process", f"{max(requests)} request", set(requests) == {1}
    )
    result.numbers |= {
        "cold_p50_ms": round(median, 1),
        "cold_max_ms": round(slowest, 1),
        "requests_per_id": max(requests),
    }
