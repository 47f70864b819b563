"""Several processes that write orders at the same time, and how far they are together.

The time of a run begins when every process has encoded its pool.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from queue import Empty
from typing import Any, Final, NamedTuple

from penstock.client.registry import Registry
from penstock.errors import Refused
from penstock.lab.lab_platform import LabError
from penstock.lab.lab_processes import lab_processes
from penstock.lab.order_writer import OrderPlan, OrderWriter
from penstock.link.blocking import BlockingCluster
from penstock.serde.errors import ClientError

_REPORT_S: Final = 0.5


class WrittenOrders(NamedTuple):
    """How many orders were written in which time."""

    orders: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Their rate."""
        return self.orders / self.seconds if self.seconds else 0.0


def write_orders(
    plan: OrderPlan, bootstrap: str, registry_url: str, on_written: Callable[[int], None]
) -> WrittenOrders:
    """Write a plan with its instances; `on_written` gets how many orders are written so far."""
    context = lab_processes()
    reports: Any = context.Queue()
    ready = context.Barrier(plan.instances)
    rate = None if plan.rate is None else max(1, plan.rate // plan.instances)
    processes = [
        context.Process(
            target=_write_instance,
            args=(replace(plan, instance=one, rate=rate), bootstrap, registry_url, ready, reports),
        )
        for one in range(plan.instances)
    ]
    for process in processes:
        process.start()
    written = dict.fromkeys(range(plan.instances), 0)
    start_s, end_s, failure = float("inf"), 0.0, ""
    try:
        while any(process.is_alive() for process in processes) or not reports.empty():
            try:
                instance, count, at_s = reports.get(timeout=_REPORT_S)
            except Empty:
                continue
            if isinstance(count, str):
                failure = count
                continue
            if count == 0:
                start_s = min(start_s, at_s)
            written[instance], end_s = count, max(end_s, at_s)
            on_written(sum(written.values()))
    finally:
        for process in processes:
            process.join()
    if failure or any(process.exitcode for process in processes):
        raise LabError(failure or "a process that writes orders failed; its last lines are above")
    return WrittenOrders(sum(written.values()), max(0.0, end_s - start_s))


def _write_instance(
    plan: OrderPlan, bootstrap: str, registry_url: str, ready: Any, reports: Any
) -> None:
    with BlockingCluster(bootstrap) as cluster, Registry(registry_url) as registry:
        try:
            writer = OrderWriter(plan, cluster, registry)
            ready.wait()
            reports.put((plan.instance, 0, time.monotonic()))
            writer.write(lambda count: reports.put((plan.instance, count, time.monotonic())))
        except threading.BrokenBarrierError:
            return  # another instance reports why
        except (ClientError, Refused, OSError) as error:
            reports.put((plan.instance, str(error), time.monotonic()))
            ready.abort()
