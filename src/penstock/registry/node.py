"""The registry: its store, the log behind it, and what it takes to change something.

All on one event loop. Reads are answered from memory. Writes go one after another: find out,
decide, append, wait until the reader has applied it, answer. So who was answered finds what was
written, and what is decided has seen everything before it.

Not on `machine.Runner`: that applies what it appends at once, because nobody else writes its log.
Here a write may be lost to another node or have an outcome that nobody knows, so the state is made
of what was read back, and never of what was meant to be written.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from penstock.model import Millis
from penstock.registry.errors import (
    Declined,
    primary_unknown,
    schema_too_large,
    store_failed,
    timed_out,
)
from penstock.registry.examine import Examiner
from penstock.registry.kafka_journal import LogSettings, OutcomeUnknown, SchemaLog
from penstock.registry.store.apply import apply
from penstock.registry.store.codec import write_event
from penstock.registry.store.commands import Command, Mark
from penstock.registry.store.events import Event
from penstock.registry.store.machine import decide
from penstock.registry.store.state import Store
from penstock.registry.topic_reader import CannotWrite
from penstock.registry.usage import Usage, UsageLog

logger = logging.getLogger(__name__)

RECORD_BYTES_MAX: Final = 1_000_000 - 1024  # what a producer sends unless told otherwise
RETRY_S: Final = 5.0  # a write that fails later than this is not tried again
DECIDED_S: Final = 10.0
CATCH_UP_S: Final = 1.0

Prepare = Callable[[], Awaitable[Command]]


class Elsewhere(Exception):
    """Another node is the primary: ask there."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url


class Standing(NamedTuple):
    """This node's place among the registry's nodes."""

    is_primary: bool = False
    primary_url: str | None = None


class Registry:
    """One node of the registry."""

    def __init__(self, settings: LogSettings, clock: Callable[[], Millis]) -> None:
        self.store = Store()
        self.examiner = Examiner()
        self.usage = Usage(clock())
        self.clock = clock
        self.standing = Standing()
        self.listeners: list[Callable[[Event], None]] = []  # told of each event, once applied
        self.log = SchemaLog(settings, self._on_events)
        self.usage_log = UsageLog(settings, self.usage, clock)
        self._writing = asyncio.Lock()
        self._decided = asyncio.Event()
        self._holds_claim = False  # as far as is known: the log itself knows better
        self._tasks: set[asyncio.Task[object]] = set()

    async def start(self) -> None:
        """Read the log to its end."""
        await self.log.start()
        self.usage_log.start()

    async def stop(self) -> None:
        """Finish what is being written, and let go of the log."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.usage_log.stop()
        await self.log.stop()
        self.examiner.close()

    async def catch_up(self) -> None:
        """Read what other nodes have written by now. The primary knows it all already."""
        if self.standing.is_primary:
            return
        with suppress(TimeoutError, CannotWrite):
            await self.log.applied(await self.log.written_end(), CATCH_UP_S)

    def _on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            apply(self.store, event)
            for listener in self.listeners:
                listener(event)

    async def lead(self) -> None:
        """Take over as the primary: nothing is written before all that others wrote was read."""
        async with self._writing:
            if not self._holds_claim:
                await self._claim()
                logger.info("this node is the registry's primary")
        self._stand(Standing(is_primary=True))

    async def follow(self, primary_url: str | None) -> None:
        """Another node is the primary, or nobody can be."""
        self._stand(Standing(primary_url=primary_url))
        if self._holds_claim:
            async with self._writing:
                self._holds_claim = False
                await self.log.release()

    async def pause(self) -> None:
        """Who is primary is being found out: writes wait. A claim may turn out to hold still."""
        self._decided.clear()

    @property
    def was_primary(self) -> bool:
        """Whether this node wrote last, as far as it knows."""
        return self._holds_claim

    def _stand(self, standing: Standing) -> None:
        self.standing = standing
        self._decided.set()

    async def _claim(self) -> None:
        await self.log.claim()
        mark = decide(self.store, Mark(), self.clock())
        end_offset = await self.log.append([write_event(event) for event in mark.events])
        await self.log.applied(end_offset)
        self._holds_claim = True

    async def write(self, prepare: Prepare) -> object:
        """Carry out a command; `prepare` finds out what it must know, when its turn has come.

        It runs before that as well, so that a slow examination does not hold up other writes: when
        its turn comes, what was parsed and compared is remembered.

        Goes on to its end even if nobody waits for the answer any more: the next write must find
        this one applied.
        """
        await self._check_primary()
        await prepare()
        task: asyncio.Task[object] = asyncio.create_task(self._write(prepare))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def carry_out(self, command: Command) -> object:
        """As `write`, for a command that needs nothing to be found out."""

        async def prepare() -> Command:
            return command

        return await self.write(prepare)

    async def _check_primary(self) -> None:
        """Raises Elsewhere, or declines when it takes too long to find out who may write."""
        if not self._decided.is_set():
            try:
                async with asyncio.timeout(DECIDED_S):
                    await self._decided.wait()
            except TimeoutError:
                raise primary_unknown() from None
        if self.standing.is_primary:
            return
        if self.standing.primary_url is None:
            raise primary_unknown()
        raise Elsewhere(self.standing.primary_url)

    async def _write(self, prepare: Prepare) -> object:
        loop = asyncio.get_running_loop()
        async with self._writing:
            give_up_at = loop.time() + RETRY_S
            while self.standing.is_primary:
                try:
                    if not self._holds_claim:
                        await self._claim()
                    return await self._decide(await prepare())
                except (CannotWrite, OutcomeUnknown) as trouble:
                    # Fenced, failed or in doubt: a new claim settles what became of it, and then
                    # the command is decided again on what is there.
                    self._holds_claim = False
                    if loop.time() > give_up_at:
                        raise _worded(trouble) from None
                    logger.warning("a write is done again: %s", trouble)
                except TimeoutError:
                    self._holds_claim = False
                    raise timed_out("the log was not read to what was written") from None
        raise primary_unknown()

    async def _decide(self, command: Command) -> object:
        outcome = decide(self.store, command, self.clock())
        if outcome.events:
            records = [write_event(event) for event in outcome.events]
            for record in records:
                size_bytes = len(record.key) + len(record.value or b"")
                if size_bytes > RECORD_BYTES_MAX:
                    raise schema_too_large(f"its record would have {size_bytes} bytes")
            end_offset = await self.log.append(records)
            await self.log.applied(end_offset)
        (reply,) = outcome.replies
        return reply.body


def _worded(trouble: CannotWrite | OutcomeUnknown) -> Declined:
    if isinstance(trouble, CannotWrite):
        return store_failed(str(trouble))
    return timed_out(f"it is not known whether the log was written ({trouble})")
