"""Rolling upgrades in the right and in the wrong order, per level, tick by tick.

Two producers and two consumers. In each tick every producer sends some orders, and every consumer
reads all of them with its own schema; then the next of the four is upgraded.
"""

import time
from collections import Counter
from contextlib import ExitStack
from typing import Final

from penstock.client.consumer import Consumer
from penstock.client.decode_filter import OnDecodeError
from penstock.client.producer import Producer
from penstock.client.registry import Registry
from penstock.lab.lab_platform import LabError
from penstock.lab.lab_result import LabPlot, LabResult
from penstock.lab.lab_run import LabRun
from penstock.lab.order_events import order_event
from penstock.lab.order_schemas import CHANGES, OrderShape, contract_of
from penstock.schemas.model import SchemaType

_QUESTION: Final = "What happens when producers and consumers are upgraded in the wrong order?"
_ROLES: Final = {"consumers first": "CCPP", "producers first": "PPCC", "mixed": "CPCP"}
# Level, change, and the orders that are safe.
_CASES: Final = (
    ("BACKWARD", "remove a required field", ("consumers first",)),
    ("FORWARD", "add a required field", ("producers first",)),
    ("FULL", "add an optional field", ("consumers first", "producers first", "mixed")),
)
_TICKS: Final = 10
_WAIT_S: Final = 60.0


def run_order(lab: LabRun) -> LabResult:
    """Upgrade in every order at every level."""
    events = lab.sized(quick=10, default=200)
    result = lab.result(_QUESTION, ticks=_TICKS, events_per_tick=2 * events)
    runs = [(*case, order) for case in _CASES for order in _ROLES]
    rows = []
    lines: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for level, change, safe, order in lab.steps("upgrades", runs):
        errors = _upgrade(lab, level, change, order, events)
        total, is_safe = errors[-1], order in safe
        rows.append((level, change, order, "right" if is_safe else "wrong", total))
        text = f"{level}, {order} ({change}): " + ("no error" if is_safe else "events break")
        result.claim(text, f"{total} errors", (total == 0) == is_safe)
        result.numbers[f"{level} {order}"] = total
        points = [(float(tick), float(count)) for tick, count in enumerate(errors)]
        lines.setdefault(f"{level}: {change}", {})[order] = points
    columns = ("level", "change", "upgraded", "order", "deserialize_errors_total")
    result.table("Errors by level and order", columns, rows)
    for title, own in lines.items():
        result.plots.append(LabPlot(title, "deserialize_errors_total", own, "tick"))
    return result


def _upgrade(lab: LabRun, level: str, change: str, order: str, events: int) -> list[int]:
    """The errors so far after each tick."""
    old, new = CHANGES[change][0], CHANGES[change][-1]
    topic = lab.platform.make_topic(f"order-{level}-{order}".replace(" ", "-").lower(), 1)
    with lab.platform.registry() as registry, ExitStack() as stack:
        registry.api.set_config(f"{topic}-value", {"compatibility": level})
        fleet = _Fleet(lab, registry, topic, stack)
        for _ in range(2):
            fleet.add_producer(old)
            fleet.add_consumer(old)
        upgrades = iter(_ROLES[order])
        errors = []
        for tick in range(_TICKS):
            if tick % 2 == 1:
                fleet.upgrade(next(upgrades, ""), new)
            errors.append(fleet.tick(tick, events))
        return errors


class _Fleet:
    """Two producers and two consumers of one topic; the upgraded ones are at the end."""

    def __init__(self, lab: LabRun, registry: Registry, topic: str, stack: ExitStack) -> None:
        self._lab, self._registry, self._topic, self._stack = lab, registry, topic, stack
        self._producers: list[tuple[Producer, OrderShape]] = []
        self._consumers: list[tuple[Consumer, str]] = []
        self._read: Counter[str] = Counter()  # by group: events and errors
        self._errors = self._sent = 0

    def add_producer(self, shape: OrderShape) -> None:
        """A producer that writes this shape."""
        producer = Producer(
            self._lab.platform.bootstrap, self._topic, registry=self._registry,
            value=contract_of(shape, SchemaType.AVRO),
        )  # fmt: skip
        self._producers.append((self._stack.enter_context(producer), shape))

    def add_consumer(self, shape: OrderShape, group: str | None = None) -> None:
        """A consumer that reads with this shape, alone in its group."""
        group = group or f"{self._topic}-{len(self._consumers)}"
        consumer = Consumer(
            self._lab.platform.bootstrap, self._topic, group, registry=self._registry,
            value=contract_of(shape, SchemaType.AVRO, auto_register=False),
            on_decode_error=OnDecodeError.SKIP,
        )  # fmt: skip
        self._consumers.append((self._stack.enter_context(consumer), group))

    def upgrade(self, role: str, shape: OrderShape) -> None:
        """Replace the oldest member of a role."""
        if role == "P":
            producer, _ = self._producers.pop(0)
            producer.close()
            self.add_producer(shape)
        elif role == "C":
            consumer, group = self._consumers.pop(0)
            consumer.close()
            self.add_consumer(shape, group)

    def tick(self, tick: int, events: int) -> int:
        """Send and read; the errors of all ticks so far."""
        for number, (producer, shape) in enumerate(self._producers):
            first = (tick * 2 + number) * events
            rows = [order_event(shape, self._lab.seed, first + at) for at in range(events)]
            producer.send_many(rows).wait(_WAIT_S)
            self._sent += events
        for consumer, group in self._consumers:
            self._drain(consumer, group)
        return self._errors

    def _drain(self, consumer: Consumer, group: str) -> None:
        deadline_s = time.monotonic() + _WAIT_S
        before = _counts(consumer)
        while self._read[group] < self._sent:
            if time.monotonic() > deadline_s:
                raise LabError(f"{group} read {self._read[group]} of {self._sent} events in time")
            consumer.take_arrow(["order_id"], wait_s=0.2)
            events, errors = _counts(consumer)
            self._read[group] += events + errors - sum(before)
            self._errors += errors - before[1]
            before = events, errors
        consumer.commit()


def _counts(consumer: Consumer) -> tuple[int, int]:
    stats = [stats for _, stats in consumer.read_stats]
    return sum(one.events for one in stats), sum(sum(one.errors.values()) for one in stats)
