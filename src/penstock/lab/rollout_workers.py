"""The processes of a rollout: producers and consumers of one version each, until they are stopped.

Imported by the server that forks them, so that an upgrade costs milliseconds. A worker reports
about every second how much it has done, and after its last event.
"""

import time
from typing import Any, Final, NamedTuple

from penstock.client.consumer import Consumer
from penstock.client.decode_filter import OnDecodeError
from penstock.client.flow_control import FlowLimits
from penstock.client.registry import Registry
from penstock.lab.lab_processes import is_parent_alive
from penstock.lab.order_schemas import SHAPES, contract_of
from penstock.lab.order_writer import OrderPlan, OrderWriter
from penstock.lab.read_coverage import ReadSpan, joined, spans_in
from penstock.link.blocking import BlockingCluster

_REPORT_S: Final = 1.0
_FLOW: Final = FlowLimits(high_records=20_000, low_records=5_000)
FETCHES: Final = {  # some large ones a second rather than one for each batch
    "fetch.min.bytes": 1 << 20,
    "fetch.wait.max.ms": 500,
}
FIELDS: Final = ["order_id", "cents"]


class WorkerReport(NamedTuple):
    """What one worker did since its last report: a producer has events, a consumer has spans."""

    name: str
    events: int = 0
    spans: list[ReadSpan] | None = None
    errors: int = 0


class _StoppedError(Exception):
    """The rollout stops this worker."""


def produce_until(
    name: str, plan: OrderPlan, bootstrap: str, registry_url: str, stop: Any, reports: Any
) -> None:
    """Write orders of one version at a rate."""
    reported = 0

    def on_written(count: int) -> None:
        nonlocal reported
        reports.put(WorkerReport(name, count - reported))
        reported = count
        if stop.is_set() or not is_parent_alive():
            raise _StoppedError

    with BlockingCluster(bootstrap) as cluster, Registry(registry_url) as registry:
        writer = OrderWriter(plan, cluster, registry)
        try:
            writer.write(on_written)
        except _StoppedError:
            return


def consume_until(
    name: str, version: str, plan: OrderPlan, group: str, bootstrap: str, registry_url: str,
    stop: Any, reports: Any,
) -> None:  # fmt: skip
    """Read orders with one version's schema; errors are counted and skipped."""
    contract = contract_of(SHAPES[version], plan.language, auto_register=False)
    with (
        Registry(registry_url) as registry,
        Consumer(
            bootstrap, plan.topic, group, registry=registry, value=contract, flow=_FLOW,
            on_decode_error=OnDecodeError.SKIP, settings={"group.protocol": "consumer", **FETCHES},
        ) as consumer,
    ):  # fmt: skip
        spans: list[ReadSpan] = []
        errors = 0
        due_s = time.monotonic() + _REPORT_S
        while not stop.is_set() and is_parent_alive():
            batch = consumer.take_arrow(FIELDS, wait_s=0.2)
            if batch is not None:
                spans += spans_in(batch.partitions, batch.offsets)
            if time.monotonic() >= due_s:
                failed = _errors(consumer)
                reports.put(WorkerReport(name, spans=joined(spans), errors=failed - errors))
                spans, errors = [], failed
                due_s = time.monotonic() + _REPORT_S
        reports.put(WorkerReport(name, spans=joined(spans), errors=_errors(consumer) - errors))
        consumer.commit()  # the batch taken last is counted, so no other member needs to read it


def _errors(consumer: Consumer) -> int:
    return sum(sum(stats.errors.values()) for _, stats in consumer.read_stats)
