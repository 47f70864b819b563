"""Old events of several writer versions, read with one new schema through Spark.

The corpus has all versions in turn within each partition; a second topic has the newest only, for
comparison. If the broker's data folder is kept, a run that was stopped continues where it was: it
writes what the partitions lack, and reads in steps that are noted in a file once they are counted.
"""

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from penstock.client.registry import Registry
from penstock.console.samples.cluster_survey import describe_sizes
from penstock.lab.lab_platform import LabError
from penstock.lab.lab_result import LabPlot, LabResult
from penstock.lab.lab_run import LabRun
from penstock.lab.order_fleet import write_orders
from penstock.lab.order_schemas import VERSIONS, avro, schema_text
from penstock.lab.order_writer import OrderPlan
from penstock.link.blocking import BlockingCluster
from penstock.link.offsets import end_offsets, partitions_of
from penstock.protocol.compression import Codec
from penstock.schemas.model import SchemaType

_QUESTION: Final = "Can one new reader decode everything that older versions wrote?"
_READER: Final = "v6"
_PARTITIONS: Final = 8
_WRITERS: Final = 2
_FIELDS: Final = "order_id,customer,status,cents,items"
_TOPICS: Final = {"mixed": tuple(VERSIONS), "single": (_READER,)}


def run_replay(lab: LabRun) -> LabResult:
    """Write both topics and read them through Spark."""
    count = int(lab.sized(quick=20_000, default=600_000, full=500_000_000) * lab.fraction)
    step = min(count, lab.sized(quick=10_000, default=300_000, full=10_000_000))
    result = lab.result(
        _QUESTION, events=count, step=step, versions=",".join(VERSIONS), reader=_READER,
        partitions=_PARTITIONS, writers=_WRITERS, codec="zstd",
    )  # fmt: skip
    state = _State(
        None if lab.folder is None else lab.folder / f"replay-{lab.seed}-{count}.state.json"
    )
    corpus = {"mixed": count, "single": min(count, step * 2)}  # enough to compare the speed
    for name, orders in corpus.items():
        _write(lab, state, name, orders)
    for name, orders in corpus.items():
        _read_all(lab, state, name, orders, step)
    _report(lab, result, state, count)
    state.remove()
    return result


class _State:
    """What is done, in a file that is replaced after each step; without one, in memory only."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.rows: dict[str, Any] = {}
        if path is not None and path.exists():
            self.rows = json.loads(path.read_text(encoding="utf-8"))

    def note(self, key: str, value: Any) -> None:
        """Remember a value."""
        self.rows[key] = value
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        written = self._path.with_suffix(".new")
        written.write_text(json.dumps(self.rows), encoding="utf-8")
        written.replace(self._path)

    def remove(self) -> None:
        """The run is complete."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _write(lab: LabRun, state: _State, name: str, count: int) -> None:
    """Write what the topic lacks; note how fast that was."""
    topic = _topic(lab, name, count)
    try:
        lab.platform.make_topic(topic, _PARTITIONS)
    except KafkaException as failure:
        if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    if state.rows.get(f"read {name}"):
        return  # it was complete before the first step of reading
    plan = OrderPlan(
        topic, _TOPICS[name], seed=lab.seed, count=count, codec=Codec.ZSTD, instances=_WRITERS,
        is_resumed=True,
    )  # fmt: skip
    written = write_orders(
        plan, lab.platform.bootstrap, lab.platform.registry_url,
        lambda done: lab.show(f"write {name}", done, count),
    )  # fmt: skip
    if written.orders:
        state.note(f"write {name}", {"orders": written.orders, "seconds": written.seconds})


def _topic(lab: LabRun, name: str, count: int) -> str:
    return f"replay-{name}-{lab.seed}-{count}"


def _read_all(lab: LabRun, state: _State, name: str, count: int, step: int) -> None:
    from penstock.spark.spark_session import session

    topic = _topic(lab, name, count)
    with BlockingCluster(lab.platform.bootstrap) as cluster:
        ends = cluster.run(end_offsets(cluster.run(partitions_of([topic]))))
    key = f"read {name}"
    row = state.rows.get(key) or {"at": 0, "seconds": 0.0, "decoded": {}, "errors": {}}
    span = -(-step // len(ends))  # offsets of each partition in a step
    spark = session("penstock-lab")
    end_most = max(ends.values())
    zero = {str(one.partition): 0 for one in ends}
    few = {str(one.partition): min(10, last) for one, last in ends.items()}
    _step(spark, lab, topic, {"startingOffsets": zero, "endingOffsets": few})  # workers start
    while row["at"] < end_most:
        start, end = row["at"], row["at"] + span
        bounds = {
            edge: {str(one.partition): min(at, last) for one, last in ends.items()}
            for edge, at in (("startingOffsets", start), ("endingOffsets", end))
        }
        started_s = time.monotonic()
        counts = _step(spark, lab, topic, bounds)
        row["seconds"] += time.monotonic() - started_s
        for kind, found in counts.items():
            row[kind] = dict(Counter(row[kind]) + found)
        row["at"] = end
        state.note(key, row)
        lab.show(key, min(end, end_most), end_most)


def _step(
    spark: Any, lab: LabRun, topic: str, bounds: dict[str, dict[str, int]]
) -> dict[str, Counter[str]]:
    """By schema id: rows that were decoded, and rows with an error."""
    reader = (
        spark.read.format("penstock")
        .option("kafka.bootstrap.servers", lab.platform.bootstrap)
        .option("subscribe", topic)
        .option("registry", lab.platform.registry_url)
        .option("value", "avro")
        .option("readerSchema", avro(VERSIONS[_READER]))
        .option("columns", f"{_FIELDS},_schema_id,_error")
    )
    for edge, offsets in bounds.items():
        reader = reader.option(edge, json.dumps({topic: offsets}))
    rows = reader.load().selectExpr(
        "_schema_id", "_error IS NOT NULL AS failed", "size(items) AS items", "cents"
    )
    groups = rows.groupBy("_schema_id", "failed").agg({"*": "count", "items": "sum"}).collect()
    counts: dict[str, Counter[str]] = {"decoded": Counter(), "errors": Counter()}
    for group in groups:
        kind = "errors" if group["failed"] else "decoded"
        counts[kind][str(group["_schema_id"])] += int(group["count(1)"])
    return counts


def _report(lab: LabRun, result: LabResult, state: _State, count: int) -> None:
    mixed, single = (state.rows[f"read {name}"] for name in _TOPICS)
    _report_log(lab, result, state.rows.get("write mixed"), count)
    decoded, errors = sum(mixed["decoded"].values()), sum(mixed["errors"].values())
    result.claim("100 % are decoded", f"{decoded:,} of {count:,}", decoded == count and not errors)
    with lab.platform.registry() as registry:
        names = _version_names(registry, f"{_topic(lab, 'mixed', count)}-value")
    written = {*mixed["decoded"], *mixed["errors"]}
    rows = [
        (names.get(key, key), f"{mixed['decoded'].get(key, 0):,}", mixed["errors"].get(key, 0))
        for key in sorted(written)
    ]
    result.table("By writer version", ("version", "decoded", "errors"), rows)
    result.claim(
        f"all {len(VERSIONS)} writer versions are among them",
        ", ".join(names.get(key, key) for key in sorted(written)), written == set(names),
    )  # fmt: skip
    singles = sum(single["decoded"].values())
    rates = {"mixed": decoded / mixed["seconds"], "single": singles / single["seconds"]}
    ratio = rates["mixed"] / rates["single"]
    result.claim(
        "mixed versions are read at half the speed of one version at least",
        f"{ratio:.2f}", ratio >= 0.5, is_speed=True,
    )  # fmt: skip
    result.table(
        "Read through Spark",
        ("topic", "events", "seconds", "events/s"),
        [
            (name, f"{events:,}", f"{row['seconds']:.0f}", f"{rates[name]:,.0f}")
            for name, events, row in (("mixed", decoded, mixed), ("single", singles, single))
        ],
    )
    result.plots.append(
        LabPlot("Replay", "events/s", {name: [(0, rate)] for name, rate in rates.items()})
    )
    result.numbers |= {
        "events": count, "decoded": decoded, "errors": errors, "ratio": round(ratio, 2),
        "mixed_events_s": round(rates["mixed"]), "single_events_s": round(rates["single"]),
    }  # fmt: skip


def _report_log(lab: LabRun, result: LabResult, written: dict[str, Any] | None, count: int) -> None:
    """How fast the corpus was written, and how large it is."""
    topic = _topic(lab, "mixed", count)
    with BlockingCluster(lab.platform.bootstrap) as cluster:
        sizes = cluster.run(describe_sizes())
        ends = cluster.run(end_offsets(cluster.run(partitions_of([topic]))))
    if sizes is None:
        raise LabError("the brokers do not tell the sizes of their logs")
    size = sum(size for (_, one), size in sizes.by_replica.items() if one.topic == topic)
    in_log = sum(ends.values())
    result.claim("every event is in the log once", f"{in_log:,} of {count:,}", in_log == count)
    rows = [
        ("events in the log", f"{in_log:,}"),
        ("bytes on disk, of all replicas", f"{size:,}"),
        ("bytes per event", f"{size / count:.1f}"),
    ]
    if written is not None:  # by the last session that wrote
        rate = written["orders"] / written["seconds"]
        rows.append(("written, events/s", f"{rate:,.0f}"))
        result.numbers["written_events_s"] = round(rate)
    result.table("The corpus", ("measure", "value"), rows)
    result.numbers["disk_bytes"] = size


def _version_names(registry: Registry, subject: str) -> dict[str, str]:
    """The version of the Order behind each schema id."""
    return {
        str(int(registry.look_up(subject, schema_text(shape, SchemaType.AVRO)).id)): name
        for name, shape in VERSIONS.items()
    }
