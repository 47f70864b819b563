"""A client that creates, widens, configures and deletes topics, one change after the other.

It asks whichever broker answers, so that the time until the next acknowledged change is the
cluster's and not that of a client library.
"""

from __future__ import annotations

import random
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.errors import ErrorCode
from tests.support.cluster_load.client import Client
from tests.support.history import Changed, Outcome, Seen
from tests.support.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.history import History

GAP_S = 0.05
RESPONSE_S = 2.5
TOPICS_MAX = 20
PREFIX = "changed-"
RETENTION = "retention.ms"
DAY_MS = 86_400_000
CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS, ALTER_CONFIGS = 19, 20, 37, 44
METADATA, DESCRIBE_CONFIGS = 3, 32
SET, TOPIC, OF_TOPIC = 0, 2, 1


class MetadataChanges(Client):
    """Changes topics. A topic whose change has no known outcome is left alone from then on."""

    def __init__(self, name: str, history: History, bootstrap: str) -> None:
        super().__init__(name, history)
        self.acknowledged_at: list[float] = []
        self._addresses = [address.split(":") for address in bootstrap.split(",")]
        self._next_address = 0
        self._wire: Wire | None = None
        self._partitions: dict[str, int] = {}  # of the topics that are there for certain
        self._made = 0
        self._changes = 0
        self._chance = random.Random(1)

    def step(self) -> None:
        choice, names = self._chance.random(), sorted(self._partitions)
        if len(names) >= TOPICS_MAX:
            choice = 1.0
        if choice < 0.4 or not names:
            self._create()
        elif choice < 0.6:
            self._widen(self._chance.choice(names))
        elif choice < 0.9:
            self._configure(self._chance.choice(names))
        else:
            self._delete(self._chance.choice(names))
        self.pause(GAP_S)

    def close(self) -> None:
        """Read what there is in the end."""
        give_up_at = time.monotonic() + 60
        while time.monotonic() < give_up_at:
            with suppress(OSError):
                self._read(self._connected())
                self._connected().close()
                return
            self._disconnect()
        self.errors.append("the topics cannot be described")

    def first_after(self, moment: float) -> float | None:
        """How long after a moment the next change was acknowledged."""
        return next((at - moment for at in self.acknowledged_at if at > moment), None)

    def _create(self) -> None:
        self._made += 1
        name = f"{PREFIX}{self._made}"
        count = self._chance.randint(1, 3)
        topic = {"name": name, "num_partitions": count, "replication_factor": 3}
        fields = {"topics": [topic], "timeout": 2000}
        self._change(name, count, CREATE_TOPICS, 7, lambda answer: answer.topics[0], **fields)

    def _widen(self, name: str) -> None:
        count = self._partitions[name] + 1
        fields = {
            "topics": [{"name": name, "count": count, "assignments": None}],
            "timeout": 2000,
        }
        self._change(name, count, CREATE_PARTITIONS, 3, lambda answer: answer.results[0], **fields)

    def _delete(self, name: str) -> None:
        fields = {"topics": [{"name": name}], "timeout": 2000}
        self._change(name, 0, DELETE_TOPICS, 6, lambda answer: answer.responses[0], **fields)

    def _configure(self, name: str) -> None:
        self._changes += 1
        value = str(DAY_MS + self._changes)
        config = {"name": RETENTION, "config_operation": SET, "value": value}
        resource = {"resource_type": TOPIC, "resource_name": name, "configs": [config]}
        outcome = self._ask(
            ALTER_CONFIGS, 1, lambda answer: answer.responses[0], resources=[resource]
        )
        self.history.add(Changed(f"{RETENTION} of {name}", value, outcome))
        if outcome != Outcome.ACKNOWLEDGED:
            del self._partitions[name]

    def _change(
        self, name: str, count: int, api_key: int, version: int, row_of: Any, **fields: Any
    ) -> None:
        outcome = self._ask(api_key, version, row_of, **fields)
        self.history.add(Changed(f"partitions of {name}", str(count or ""), outcome))
        if outcome == Outcome.ACKNOWLEDGED and count:
            self._partitions[name] = count
        else:
            self._partitions.pop(name, None)
        if not count:  # with the topic, its settings are gone or not
            self.history.add(Changed(f"{RETENTION} of {name}", "", outcome))

    def _ask(
        self, api_key: int, version: int, row_of: Callable[[Any], Any], **fields: Any
    ) -> Outcome:
        try:
            row = row_of(self._connected().call(api_key, version, **fields))
        except OSError as error:
            self._disconnect()
            self.notes[type(error).__name__] += 1
            return Outcome.UNKNOWN
        if row.error_code == ErrorCode.none:
            self.acknowledged += 1
            self.acknowledged_at.append(time.monotonic())
            return Outcome.ACKNOWLEDGED
        self.notes[ErrorCode(row.error_code).name] += 1
        self._disconnect()
        return Outcome.UNKNOWN

    def _read(self, wire: Wire) -> None:
        topics = wire.call(METADATA, 12, topics=None).topics
        counts = {row.name: str(len(row.partitions)) for row in topics}
        asked = [{"resource_type": TOPIC, "resource_name": name} for name in counts]
        configs = wire.call(DESCRIBE_CONFIGS, 4, resources=asked).results
        retentions = {
            row.resource_name: config.value
            for row in configs
            for config in row.configs
            if config.name == RETENTION and config.config_source == OF_TOPIC
        }
        for key in dict.fromkeys(each.key for each in self.history.of(Changed)):
            what, _, name = key.partition(" of ")
            values = counts if what == "partitions" else retentions
            self.history.add(Seen(key, values.get(name, "")))

    def _connected(self) -> Wire:
        while self._wire is None:
            host, port = self._addresses[self._next_address]
            try:
                self._wire = Wire(int(port), host=host, timeout_s=RESPONSE_S)
            except OSError:
                self._disconnect()
                self.pause(0.01)
                if self.is_stopping:
                    time.sleep(0.01)
        return self._wire

    def _disconnect(self) -> None:
        """Try the next broker."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None
        self._next_address = (self._next_address + 1) % len(self._addresses)
