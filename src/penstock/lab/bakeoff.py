"""The three languages side by side: size, time to encode and decode, permitted changes."""

import time
from collections.abc import Callable
from typing import Any, Final

from penstock.client.registry import Registry
from penstock.lab.change_matrix import live_reads
from penstock.lab.lab_result import LabPlot, LabResult
from penstock.lab.lab_run import LabRun
from penstock.lab.order_events import order_events
from penstock.lab.order_schemas import CHANGES, V1, contract_of
from penstock.schemas.model import SchemaType
from penstock.serde.batch_serializers import BatchDeserializer, BatchSerializer
from penstock.serde.serializers import Deserializer, Serializer

_QUESTION: Final = "Which language is smaller, faster and more tolerant, for the same event?"
_PATHS: Final = ("encode one", "decode one", "encode many", "decode many")
_SINGLE: Final = 1_000  # events of the paths that take them one by one


def run_bakeoff(lab: LabRun) -> LabResult:
    """Measure each language with the same orders."""
    events = lab.sized(quick=500, default=5_000)
    rounds = lab.sized(quick=1, default=5)
    result = lab.result(_QUESTION, events=events, rounds=rounds)
    rows = list(order_events(V1, lab.seed, events))
    table = []
    sizes: dict[str, float] = {}
    works: dict[str, int] = {}
    with lab.platform.registry() as registry:
        for language in lab.steps("languages", list(SchemaType)):
            name = str(language)
            sizes[name], times = _measure(registry, language, rows, rounds)
            works[name] = sum(
                all(one.is_good for side in sides for one in side)
                for sides in (
                    live_reads(registry, language, change, lab.seed) for change in CHANGES
                )
            )
            shown = {what: f"{spent:.2f}" for what, spent in times.items()}
            numbers = {"bytes": round(sizes[name]), "changes": works[name]}
            result.numbers[name] = {**numbers, **shown}
            safe = f"{works[name]} of {len(CHANGES)}"
            table.append((name, f"{sizes[name]:.0f}", *shown.values(), safe))
    columns = ("language", "bytes", *(f"{what}, us" for what in _PATHS))
    result.table(
        "The same orders in three languages",
        (*columns, "changes that are safe in both directions"),
        table,
    )
    result.plots.append(
        LabPlot("Bytes per order", "bytes", {name: [(0, size)] for name, size in sizes.items()})
    )
    _claims(result, sizes, works)
    return result


def _claims(result: LabResult, sizes: dict[str, float], works: dict[str, int]) -> None:
    smallest = min(sizes, key=sizes.__getitem__)
    result.claim("Avro is the smallest", smallest, smallest == "AVRO")
    ratio = sizes["JSON"] / sizes["AVRO"]
    result.claim("JSON is at least 1.5 times as large as Avro", f"{ratio:.2f}", ratio >= 1.5)
    tolerant = max(works, key=works.__getitem__)
    result.claim(
        "Protobuf permits the most changes in both directions",
        ", ".join(f"{name} {count}" for name, count in works.items()), tolerant == "PROTOBUF",
    )  # fmt: skip


def _measure(
    registry: Registry, language: SchemaType, rows: list[dict[str, Any]], rounds: int
) -> tuple[float, dict[str, float]]:
    """Bytes per event, and microseconds per event of each path."""
    topic, contract = f"bakeoff-{language}", contract_of(V1, language)
    single_out = Serializer(registry, topic, contract)
    single_in = Deserializer(registry, topic, reader=contract, as_dicts=True)
    many_out = BatchSerializer(registry, topic, contract)
    many_in = BatchDeserializer(registry, topic, reader=contract)
    framed = many_out.serialize_many(rows).contents()
    some, framed_some = rows[:_SINGLE], framed[:_SINGLE]
    work: dict[str, tuple[Callable[[], Any], int]] = {
        "encode one": (lambda: [single_out.serialize(row) for row in some], len(some)),
        "decode one": (lambda: [single_in.deserialize(one) for one in framed_some], len(some)),
        "encode many": (lambda: many_out.serialize_many(rows), len(rows)),
        "decode many": (lambda: many_in.deserialize_many(framed), len(rows)),
    }
    times = {name: _us(*work[name], rounds) for name in _PATHS}
    return sum(map(len, framed)) / len(framed), times


def _us(work: Callable[[], Any], events: int, rounds: int) -> float:
    """The best time per event of some rounds."""
    times = []
    for _ in range(rounds + 1):  # the first compiles what is compiled once
        start_s = time.perf_counter()
        work()
        times.append(time.perf_counter() - start_s)
    return min(times[1:]) / events * 1e6
