"""Several processes that write orders at the same time, and how far they are together.

The time of a run begins when every process has encoded its pool.
"""

import threading
import time
from collections.abc import Callable, Mapping
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
    """How many orders were written in which time, and the CPU time of their writers."""

    orders: int
    seconds: float
    cpu_seconds: float

    @property
    def per_second(self) -> float:
        """Their rate."""
        return self.orders / self.seconds if self.seconds else 0.0

    @property
    def cpu_us(self) -> float:
        """CPU time of the writers for each."""
        return self.cpu_seconds / self.orders * 1e6 if self.orders else 0.0


class _Progress(NamedTuple):
    """How far one instance is; `orders` is the reason instead if it failed."""

    instance: int
    orders: int | str
    at_s: float
    cpu_s: float


def _progress(instance: int, count: int | str) -> _Progress:
    return _Progress(instance, count, time.monotonic(), time.process_time())


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
    first: dict[int, _Progress] = {}
    last: dict[int, _Progress] = {}
    failure = ""
    try:
        while any(process.is_alive() for process in processes) or not reports.empty():
            try:
                report: _Progress = reports.get(timeout=_REPORT_S)
            except Empty:
                continue
            if isinstance(report.orders, str):
                failure = report.orders
                continue
            first.setdefault(report.instance, report)
            last[report.instance] = report
            on_written(_total(last))
    finally:
        for process in processes:
            process.join()
    if failure or any(process.exitcode for process in processes):
        raise LabError(failure or "a process that writes orders failed; its last lines are above")
    return WrittenOrders(
        _total(last),
        max(one.at_s for one in last.values()) - min(one.at_s for one in first.values()),
        sum(last[number].cpu_s - report.cpu_s for number, report in first.items()),
    )


def _total(reports: Mapping[int, _Progress]) -> int:
    return sum(report.orders for report in reports.values() if isinstance(report.orders, int))


def _write_instance(
    plan: OrderPlan, bootstrap: str, registry_url: str, ready: Any, reports: Any
) -> None:
    with BlockingCluster(bootstrap) as cluster, Registry(registry_url) as registry:
        try:
            writer = OrderWriter(plan, cluster, registry)
            ready.wait()
            reports.put(_progress(plan.instance, 0))
            writer.write(lambda count: reports.put(_progress(plan.instance, count)))
        except threading.BrokenBarrierError:
            return  # another instance reports why
        except (ClientError, Refused, OSError) as error:
            reports.put(_progress(plan.instance, str(error)))
            ready.abort()
