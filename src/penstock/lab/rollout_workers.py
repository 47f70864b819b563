"""The processes of a rollout: producers and consumers of one version each, until they are stopped.

Imported by the server that forks them, so that an upgrade costs milliseconds. A worker reports
about every second how much it has done.
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
from penstock.link.blocking import BlockingCluster

_REPORT_S: Final = 1.0
_FLOW: Final = FlowLimits(high_records=20_000, low_records=5_000)
_FETCHES: Final = {  # some large ones a second rather than one for each batch
    "fetch.min.bytes": 1 << 20,
    "fetch.wait.max.ms": 500,
}
_FIELDS: Final = ["order_id", "cents"]


class WorkerReport(NamedTuple):
    """How much one worker did since its last report."""

    name: str
    is_consumer: bool
    events: int
    errors: int = 0


class _StoppedError(Exception):
    """The rollout stops this worker."""


def produce_until(
    name: str, plan: OrderPlan, bootstrap: str, registry_url: str, stop: Any, reports: Any
) -> None:
    """Write orders of one version at a rate."""
    reported = plan.start

    def on_written(count: int) -> None:
        nonlocal reported
        reports.put(WorkerReport(name, False, count - reported))
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
            on_decode_error=OnDecodeError.SKIP, settings={"group.protocol": "consumer", **_FETCHES},
        ) as consumer,
    ):  # fmt: skip
        events = errors = 0
        due_s = time.monotonic() + _REPORT_S
        while not stop.is_set() and is_parent_alive():
            consumer.take_arrow(_FIELDS, wait_s=0.2)
            if time.monotonic() >= due_s:
                stats = [one for _, one in consumer.read_stats]
                now = sum(one.events for one in stats), sum(sum(o.errors.values()) for o in stats)
                reports.put(WorkerReport(name, True, now[0] - events, now[1] - errors))
                events, errors = now
                due_s += _REPORT_S
        stats = [one for _, one in consumer.read_stats]
        failed = sum(sum(one.errors.values()) for one in stats) - errors
        read = sum(one.events for one in stats) - events
        reports.put(WorkerReport(name, True, read, failed))
