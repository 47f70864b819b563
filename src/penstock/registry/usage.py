"""Which client uses which schema id, and when last: seen as clients register and request schemas.

A client names itself in the header `Penstock-Client: name`, and may add `; role=producer` or
`; role=consumer`. Without it, a client is known by its user agent, and counts as a producer when it
registers and as a consumer when it reads. The oldest uses are evicted when there are too many, and
that is counted, because then "not used" is no longer certain.

Uses are shared by all nodes through a compacted topic, and outlive restarts. Each node writes what
it saw every few seconds and reads what all wrote. Counts of two nodes that see the same client at
the same time may be too low; the time of the last use is right. Nothing waits for this topic:
without it each node knows its own uses only.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec
from confluent_kafka import KafkaException, Producer

from penstock.model import Millis
from penstock.registry.errors import DeclinedError
from penstock.registry.kafka_journal import SchemaTopicSettings
from penstock.registry.store.codec import to_json
from penstock.registry.store.documents import read_text, read_whole
from penstock.registry.topic_reader import (
    CannotWriteError,
    TopicReader,
    client_settings,
    ensure_topic,
)

USES_MAX: Final = 50_000
CLIENT_CHARACTERS_MAX: Final = 200
PRODUCER: Final = "producer"
CONSUMER: Final = "consumer"
ROLES: Final = (PRODUCER, CONSUMER)


class SchemaUse(NamedTuple):
    """One client's use of one id."""

    context: str
    id: int
    client: str
    role: str


class UseCount(NamedTuple):
    """When a use was last seen, and how often."""

    last_at: Millis
    times: int


def identify(header: str, agent: str, usual_role: str) -> tuple[str, str]:
    """The client's name and role, from its headers and its request."""
    name, _, attribute = header.partition(";")
    role = attribute.strip().removeprefix("role=").strip()
    shown = (name.strip() or agent.strip() or "unknown")[:CLIENT_CHARACTERS_MAX]
    return shown, role if role in ROLES else usual_role


class SchemaUsage:
    """The uses seen by all nodes. Bounded; the oldest are evicted."""

    def __init__(self, since: Millis, uses_max: int = USES_MAX) -> None:
        self.since = since  # uses before it are not known
        self._uses: OrderedDict[SchemaUse, UseCount] = OrderedDict()
        self._unshared: set[SchemaUse] = set()  # seen here, and not written to the topic yet
        self._uses_max = uses_max
        self.evicted: int = 0

    def note(self, use: SchemaUse, now: Millis) -> None:
        """A client requested an id, or registered its schema."""
        seen = self._uses.pop(use, None)
        self._keep(use, UseCount(now, 1 if seen is None else seen.times + 1))
        self._unshared.add(use)

    def merge(self, use: SchemaUse, reported: UseCount) -> None:
        """What another node saw, or this one before a restart."""
        seen = self._uses.pop(use, UseCount(Millis(0), 0))
        self._keep(
            use, UseCount(max(seen.last_at, reported.last_at), max(seen.times, reported.times))
        )

    def _keep(self, use: SchemaUse, seen: UseCount) -> None:
        self._uses[use] = seen
        if len(self._uses) > self._uses_max:
            evicted, _ = self._uses.popitem(last=False)
            self._unshared.discard(evicted)
            self.evicted += 1

    def take_unshared(self) -> list[tuple[SchemaUse, UseCount]]:
        """What other nodes do not know yet; the next call gives only what came since."""
        unshared, self._unshared = self._unshared, set()
        return [(use, self._uses[use]) for use in unshared]

    def of(self, context: str, ids: frozenset[int]) -> list[tuple[SchemaUse, UseCount]]:
        """All known uses of some ids, the latest first."""
        uses = [
            (use, seen)
            for use, seen in self._uses.items()
            if use.context == context and use.id in ids
        ]
        return sorted(uses, key=lambda entry: entry[1].last_at, reverse=True)


logger: Final = logging.getLogger(__name__)

SHARE_S: Final = 5.0
WRITE_S: Final = 5.0
RETENTION_MS: Final = 90 * 86_400_000
_SINCE_KEY: Final = to_json({"since": True})


class KnownSince(NamedTuple):
    """When the first node began to see uses."""

    at: Millis


class UsageReport(NamedTuple):
    """One use, as a node reported it."""

    use: SchemaUse
    seen: UseCount


class UsageLog:
    """Writes what a node saw to the topic, and reads what all nodes wrote."""

    def __init__(
        self, settings: SchemaTopicSettings, usage: SchemaUsage, clock: Callable[[], Millis]
    ) -> None:
        self._settings = settings
        self._topic = f"{settings.topic}-usage"
        self._usage = usage
        self._clock = clock
        self._reader: TopicReader[KnownSince | UsageReport] = TopicReader(
            settings.kafka, self._topic, read_report, self._on_reports
        )
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="usage-writer")
        self._producer: Producer | None = None
        self._task: asyncio.Task[None] | None = None
        self.is_shared: bool = False  # whether what other nodes saw is known here

    def start(self) -> None:
        """Begin in the background."""
        self._task = asyncio.create_task(self._share())

    async def stop(self) -> None:
        """Write the rest."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self.is_shared:
            await self._write_unshared()
        await self._reader.stop()
        self._writer.shutdown(wait=False)

    async def _share(self) -> None:
        while not self.is_shared:
            try:
                await self._run(self._ensure_topic)
            except (KafkaException, CannotWriteError) as error:
                logger.warning("uses of schemas are not shared between nodes: %s", error)
                await asyncio.sleep(SHARE_S * 10)
                continue
            await self._reader.start()
            self.is_shared = True
        await self._write([(_SINCE_KEY, to_json({"at": self._usage.since}))])
        while True:
            await asyncio.sleep(SHARE_S)
            await self._write_unshared()

    async def _write_unshared(self) -> None:
        unshared = self._usage.take_unshared()
        if unshared:
            await self._write([write_report(use, seen) for use, seen in unshared])

    async def _write(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        await self._run(lambda: self._produce(records))

    async def _run(self, work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._writer, work)

    def _on_reports(self, items: Sequence[KnownSince | UsageReport]) -> None:
        usage = self._usage
        for item in items:
            if isinstance(item, KnownSince):
                usage.since = min(usage.since, max(item.at, Millis(self._clock() - RETENTION_MS)))
            else:
                usage.merge(item.use, item.seen)

    # In the writer's thread.

    def _ensure_topic(self) -> None:
        config = {"cleanup.policy": "compact,delete", "retention.ms": str(RETENTION_MS)}
        settings = self._settings
        ensure_topic(settings.kafka, self._topic, settings.replication_factor, config)

    def _produce(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        if self._producer is None:
            settings = {**client_settings(self._settings.kafka), "linger.ms": 5}
            self._producer = Producer(settings)
        for key, value in records:
            with suppress(BufferError, KafkaException):  # the next use of it is written again
                self._producer.produce(self._topic, key=key, value=value, partition=0)
        self._producer.flush(WRITE_S)


def write_report(use: SchemaUse, seen: UseCount) -> tuple[bytes, bytes]:
    """A use as its record."""
    return to_json(use._asdict()), to_json({"lastSeen": seen.last_at, "count": seen.times})


def read_report(
    key: bytes | None, value: bytes | None, _timestamp: Millis
) -> KnownSince | UsageReport | None:
    """The report in a record; None if it cannot be read."""
    try:
        name, report = msgspec.json.decode(key or b""), msgspec.json.decode(value or b"")
        if not isinstance(name, dict) or not isinstance(report, dict):
            return None
        if key == _SINCE_KEY:
            return KnownSince(Millis(int(report["at"])))
        use = SchemaUse(
            read_text(name, "context") or "",
            read_whole(name, "id") or 0,
            read_text(name, "client") or "",
            read_text(name, "role") or "",
        )
        return UsageReport(use, UseCount(Millis(int(report["lastSeen"])), int(report["count"])))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, DeclinedError):
        return None
