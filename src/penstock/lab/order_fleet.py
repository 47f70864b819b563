"""Several processes that write orders at the same time, and how far they are together.

Each writes to partitions of its own. The time of a run begins when every process has encoded its
pool. They end when the process that started them has ended.
"""

import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from queue import Empty
from typing import Any, Final, NamedTuple

from penstock.client.registry import Registry
from penstock.errors import Refused
from penstock.lab.lab_platform import LabError
from penstock.lab.lab_processes import is_parent_alive, lab_processes
from penstock.lab.order_writer import OrderPlan, OrderWriter
from penstock.link.blocking import BlockingCluster
from penstock.link.offsets import end_offsets, partitions_of
from penstock.serde.errors import ClientError

_REPORT_S: Final = 0.5
_READY_S: Final = 300.0


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
    """Write a plan with its instances; `on_written` gets how many orders are written so far.

    Orders that a resumed plan finds in the log are part of that number, but not of the result.
    """
    with BlockingCluster(bootstrap) as cluster:
        partitions = cluster.run(partitions_of([plan.topic]))
        there = sum(cluster.run(end_offsets(partitions)).values()) if plan.is_resumed else 0
    if plan.instances > len(partitions):
        raise LabError(
            f"{plan.topic} has {len(partitions)} partitions, and an instance writes at least one:"
            f" use at most {len(partitions)} instances, or more partitions"
        )
    context = lab_processes()
    reports: Any = context.Queue()
    ready = context.Barrier(plan.instances)
    processes = [
        context.Process(
            target=_write_instance,
            args=(replace(plan, instance=one), bootstrap, registry_url, ready, reports),
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
    except BaseException:
        for process in processes:
            process.terminate()
        raise
    finally:
        for process in processes:
            process.join()
    if failure or any(process.exitcode for process in processes):
        raise LabError(failure or "a process that writes orders failed; its last lines are above")
    return WrittenOrders(
        _total(last) - there,
        max(one.at_s for one in last.values()) - min(one.at_s for one in first.values()),
        sum(last[number].cpu_s - report.cpu_s for number, report in first.items()),
    )


def _total(reports: Mapping[int, _Progress]) -> int:
    return sum(report.orders for report in reports.values() if isinstance(report.orders, int))


def _write_instance(
    plan: OrderPlan, bootstrap: str, registry_url: str, ready: Any, reports: Any
) -> None:
    def on_written(count: int) -> None:
        reports.put(_progress(plan.instance, count))
        if not is_parent_alive():
            sys.exit("the process that started this one has ended")

    with BlockingCluster(bootstrap) as cluster, Registry(registry_url) as registry:
        try:
            writer = OrderWriter(plan, cluster, registry)
            ready.wait(_READY_S)
            reports.put(_progress(plan.instance, 0))
            writer.write(on_written)
        except threading.BrokenBarrierError:
            return  # another instance reports why
        except (ClientError, Refused, OSError) as error:
            reports.put(_progress(plan.instance, str(error)))
            ready.abort()
