"""Who uses which schema id, and when last: seen as clients register schemas and ask for them.

A client says who it is in the header `Penstock-Client: name`, and may add `; role=producer` or
`; role=consumer`. One that says nothing is known by its user agent, and taken for a producer when
it registers and for a consumer when it reads. What came first is forgotten when there are too many;
forgetting is noted, because then "nobody uses it" is no longer the truth.

Uses shared by all nodes of a registry, and kept over restarts: a compacted topic of their own.

Each node writes what it saw every few seconds and reads what all wrote. Counts of two nodes that
see the same client at the same time may fall short; when a use was seen last does not. Nobody waits
for this topic: while it cannot be had, each node knows its own uses only, and says so once.
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
from penstock.registry.errors import Declined
from penstock.registry.kafka_journal import LogSettings
from penstock.registry.store.codec import to_json
from penstock.registry.store.documents import read_text, read_whole
from penstock.registry.topic_reader import CannotWrite, TopicReader, client_settings, ensure_topic

USES_MAX: Final = 50_000
CLIENT_CHARACTERS_MAX: Final = 200
PRODUCER: Final = "producer"
CONSUMER: Final = "consumer"
ROLES: Final = (PRODUCER, CONSUMER)


class Use(NamedTuple):
    """One client's use of one id."""

    context: str
    id: int
    client: str
    role: str


class Seen(NamedTuple):
    """When, and how often."""

    last_at: Millis
    times: int


def identify(header: str, agent: str, usual_role: str) -> tuple[str, str]:
    """The client's name and role, from what it says and what it does."""
    name, _, said = header.partition(";")
    role = said.strip().removeprefix("role=").strip()
    shown = (name.strip() or agent.strip() or "unknown")[:CLIENT_CHARACTERS_MAX]
    return shown, role if role in ROLES else usual_role


class Usage:
    """Of all nodes, as far as they have told. Bounded; the oldest go first."""

    def __init__(self, since: Millis, uses_max: int = USES_MAX) -> None:
        self.since = since  # nothing is known of before
        self._uses: OrderedDict[Use, Seen] = OrderedDict()
        self._untold: set[Use] = set()  # noted here, and not told to others yet
        self._uses_max = uses_max
        self.forgotten = 0

    def note(self, use: Use, now: Millis) -> None:
        """A client asked for an id, or said that it uses it."""
        seen = self._uses.pop(use, None)
        self._keep(use, Seen(now, 1 if seen is None else seen.times + 1))
        self._untold.add(use)

    def merge(self, use: Use, told: Seen) -> None:
        """What another node saw, or this one before it was started anew."""
        seen = self._uses.pop(use, Seen(Millis(0), 0))
        self._keep(use, Seen(max(seen.last_at, told.last_at), max(seen.times, told.times)))

    def _keep(self, use: Use, seen: Seen) -> None:
        self._uses[use] = seen
        if len(self._uses) > self._uses_max:
            gone, _ = self._uses.popitem(last=False)
            self._untold.discard(gone)
            self.forgotten += 1

    def take_untold(self) -> list[tuple[Use, Seen]]:
        """What others do not know yet; the next call gives only what came since."""
        untold, self._untold = self._untold, set()
        return [(use, self._uses[use]) for use in untold]

    def of(self, context: str, ids: frozenset[int]) -> list[tuple[Use, Seen]]:
        """All known uses of some ids, the latest first."""
        found = [
            (use, seen)
            for use, seen in self._uses.items()
            if use.context == context and use.id in ids
        ]
        return sorted(found, key=lambda one: one[1].last_at, reverse=True)


logger = logging.getLogger(__name__)

TELL_S: Final = 5.0
WRITE_S: Final = 5.0
KEPT_MS: Final = 90 * 86_400_000
_SINCE_KEY: Final = to_json({"since": True})


class Since(NamedTuple):
    """From when on uses are known."""

    at: Millis


class Told(NamedTuple):
    """One use, as a node told it."""

    use: Use
    seen: Seen


class UsageLog:
    """Keeps a node's `Usage` and the topic alike."""

    def __init__(self, settings: LogSettings, usage: Usage, clock: Callable[[], Millis]) -> None:
        self._settings = settings
        self._topic = f"{settings.topic}-usage"
        self._usage = usage
        self._clock = clock
        self._reader: TopicReader[Since | Told] = TopicReader(
            settings.kafka, self._topic, read_told, self._on_told
        )
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="usage-writer")
        self._producer: Producer | None = None
        self._task: asyncio.Task[None] | None = None
        self.is_shared = False  # whether what other nodes saw is known here

    def start(self) -> None:
        """Begin, and wait for nothing."""
        self._task = asyncio.create_task(self._share())

    async def stop(self) -> None:
        """Tell the rest."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self.is_shared:
            await self._tell()
        await self._reader.stop()
        self._writer.shutdown(wait=False)

    async def _share(self) -> None:
        while not self.is_shared:
            try:
                await self._run(self._ensure_topic)
            except (KafkaException, CannotWrite) as reason:
                logger.warning("uses of schemas are not shared between nodes: %s", reason)
                await asyncio.sleep(TELL_S * 10)
                continue
            await self._reader.start()
            self.is_shared = True
        await self._write([(_SINCE_KEY, to_json({"at": self._usage.since}))])
        while True:
            await asyncio.sleep(TELL_S)
            await self._tell()

    async def _tell(self) -> None:
        untold = self._usage.take_untold()
        if untold:
            await self._write([write_told(use, seen) for use, seen in untold])

    async def _write(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        await self._run(lambda: self._produce(records))

    async def _run(self, work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._writer, work)

    def _on_told(self, items: Sequence[Since | Told]) -> None:
        usage = self._usage
        for one in items:
            if isinstance(one, Since):
                usage.since = min(usage.since, max(one.at, Millis(self._clock() - KEPT_MS)))
            else:
                usage.merge(one.use, one.seen)

    # In the writer's thread

    def _ensure_topic(self) -> None:
        config = {"cleanup.policy": "compact,delete", "retention.ms": str(KEPT_MS)}
        settings = self._settings
        ensure_topic(settings.kafka, self._topic, settings.replication_factor, config)

    def _produce(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        if self._producer is None:
            settings = {**client_settings(self._settings.kafka), "linger.ms": 5}
            self._producer = Producer(settings)
        for key, value in records:
            with suppress(BufferError, KafkaException):  # the next sight of the use tells it again
                self._producer.produce(self._topic, key=key, value=value, partition=0)
        self._producer.flush(WRITE_S)


def write_told(use: Use, seen: Seen) -> tuple[bytes, bytes]:
    """A use as its record."""
    return to_json(use._asdict()), to_json({"lastSeen": seen.last_at, "count": seen.times})


def read_told(key: bytes | None, value: bytes | None, timestamp: Millis) -> Since | Told | None:
    """What a record says; None for what is not to be understood."""
    try:
        name, told = msgspec.json.decode(key or b""), msgspec.json.decode(value or b"")
        if not isinstance(name, dict) or not isinstance(told, dict):
            return None
        if key == _SINCE_KEY:
            return Since(Millis(int(told["at"])))
        use = Use(
            read_text(name, "context") or "",
            read_whole(name, "id") or 0,
            read_text(name, "client") or "",
            read_text(name, "role") or "",
        )
        return Told(use, Seen(Millis(int(told["lastSeen"])), int(told["count"])))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, Declined):
        return None
