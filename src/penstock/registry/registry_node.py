"""One node of the registry: its state, its place among the nodes, and the writes of the primary.

All on one event loop. Reads are served from memory by every node. Writes go through the machine's
runner on the primary, over a journal that is applied when it was read back: a write may be lost to
another node or have an unknown outcome, so the state consists of what was read from the log. A
claim that ends, for whatever reason, is made again, and the command is decided again on what was
written.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from penstock.errors import ErrorCode, Refused
from penstock.machine import Deferred, Phase, Runner, Story
from penstock.model import Millis, Moment
from penstock.registry.errors import (
    DeclinedError,
    primary_unknown,
    store_failed,
    timed_out,
)
from penstock.registry.examine import Examiner
from penstock.registry.kafka_journal import OutcomeUnknownError, SchemaTopic, SchemaTopicSettings
from penstock.registry.store.commands import Command, MarkLog
from penstock.registry.store.events import Event
from penstock.registry.store.machine import RegistryMachine
from penstock.registry.store.state import RegistryState
from penstock.registry.subject_turns import SubjectTurns
from penstock.registry.topic_reader import CannotWriteError
from penstock.registry.usage import SchemaUsage, UsageLog

logger: Final = logging.getLogger(__name__)

RETRY_S: Final = 5.0  # a write that fails later than this is not tried again
DECIDED_S: Final = 10.0  # how long a write waits until the nodes know their primary
CATCH_UP_S: Final = 1.0
# Why the log could not be claimed; worth another try.
CLAIM_ERRORS: Final = (CannotWriteError, OutcomeUnknownError, TimeoutError)


class NotPrimaryError(Exception):
    """Another node is the primary: send the request there."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url


class RegistryRole(NamedTuple):
    """This node's role among the nodes of the registry."""

    is_primary: bool = False
    primary_url: str | None = None


class RegistryNode:
    """One node of the registry."""

    def __init__(self, settings: SchemaTopicSettings, clock: Callable[[], Millis]) -> None:
        self.state: RegistryState = RegistryState()
        self.examiner: Examiner = Examiner()
        self.turns: SubjectTurns = SubjectTurns()
        self.usage: SchemaUsage = SchemaUsage(clock())
        self.clock = clock
        self.role: RegistryRole = RegistryRole()
        self.listeners: list[Callable[[Event], None]] = []  # called with each event, once applied
        self.topic: SchemaTopic = SchemaTopic(settings, self._on_read_back)
        self.usage_log: UsageLog = UsageLog(settings, self.usage, clock)
        self._machine = RegistryMachine()
        self._story = Story(partial(logger.info, "%s"))
        self._runner = self._new_runner()
        self._is_role_known = asyncio.Event()
        self._claiming: asyncio.Task[None] | None = None
        self._writes: set[asyncio.Task[object]] = set()

    async def start(self) -> None:
        """Read the log to its end."""
        await self.topic.start()
        self.usage_log.start()

    async def stop(self) -> None:
        """Finish what is being written, and release the log."""
        await asyncio.gather(*self._writes, return_exceptions=True)
        self._resign()
        await self.usage_log.stop()
        await self.topic.stop()
        self.examiner.close()

    async def catch_up(self) -> None:
        """Read what other nodes have written by now. The primary knows it all already."""
        if self.role.is_primary:
            return
        with suppress(TimeoutError, CannotWriteError):
            await self.topic.reached(await self.topic.written_end(), CATCH_UP_S)

    def _on_read_back(self, events: Sequence[Event]) -> None:
        self._runner.on_read_back(events)
        for event in events:
            for listener in self.listeners:
                listener(event)

    # The role.

    async def lead(self) -> None:
        """Become the primary: nothing is written before all that others wrote was read."""
        if self._runner.phase is not Phase.RUNNING:
            await self._claim()
            logger.info("this node is the registry's primary")
        self._set_role(RegistryRole(is_primary=True))

    async def follow(self, primary_url: str | None) -> None:
        """Another node is the primary, or none can be."""
        self._set_role(RegistryRole(primary_url=primary_url))
        if self._claiming is not None:
            with suppress(*CLAIM_ERRORS):
                await asyncio.shield(self._claiming)
        if self._runner.phase is Phase.RUNNING:
            self._resign()
            await self.topic.release()

    async def pause(self) -> None:
        """The nodes choose a primary: writes wait. A claim may turn out to be valid still."""
        self._is_role_known.clear()

    @property
    def has_claim(self) -> bool:
        """Whether this node wrote last, as far as it knows: the log itself decides."""
        return self._runner.phase is Phase.RUNNING

    def _set_role(self, role: RegistryRole) -> None:
        self.role = role
        self._is_role_known.set()

    async def _claim(self) -> None:
        """One claim at a time; it goes on to its end even if the request behind it is cancelled."""
        if self._claiming is None or self._claiming.done():
            self._claiming = asyncio.create_task(self._claim_log())
        await asyncio.shield(self._claiming)

    async def _claim_log(self) -> None:
        self._resign()
        journal = await self.topic.claim()
        await self.topic.reached(await self.topic.written_end())
        self._runner = runner = self._new_runner()
        runner.start(journal)
        reply = await _result_of(runner.submit(lambda caller: MarkLog(caller), self._now()))
        if isinstance(reply, Exception):
            raise reply

    def _new_runner(self) -> Runner[RegistryState, Command, Event]:
        return Runner(self._machine, state=self.state, story=self._story)

    def _resign(self) -> None:
        self._runner.resign(Refused(ErrorCode.not_coordinator, "the claim on the log ended"))

    def _now(self) -> Moment:
        return Moment(Millis(0), self.clock())  # the machine has no time-outs

    # Commands.

    def query(self, command: Command) -> object:
        """The reply to a command that changes nothing. Raises DeclinedError."""
        reply = self._runner.query(command, self._now())
        if isinstance(reply, DeclinedError):
            raise reply
        return reply

    async def submit(self, command: Command) -> object:
        """Let the primary decide a command; the reply, once it was read back and applied.

        Raises NotPrimaryError or DeclinedError. Goes on to its end even if the request is
        cancelled: a write that was begun is never left in doubt.
        """
        await self._check_primary()
        task: asyncio.Task[object] = asyncio.create_task(self._write(command))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        return await asyncio.shield(task)

    async def _check_primary(self) -> None:
        """Declines when it takes too long to find out which node may write."""
        if not self._is_role_known.is_set():
            try:
                async with asyncio.timeout(DECIDED_S):
                    await self._is_role_known.wait()
            except TimeoutError:
                raise primary_unknown() from None
        if self.role.is_primary:
            return
        if self.role.primary_url is None:
            raise primary_unknown()
        raise NotPrimaryError(self.role.primary_url)

    async def _write(self, command: Command) -> object:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + RETRY_S
        while self.role.is_primary:
            try:
                return await self._write_once(command)
            except Refused as refusal:
                if refusal.code is ErrorCode.throttling_quota_exceeded:
                    raise store_failed(refusal.message) from None
                # The claim ended before the command was decided: nothing was written.
                give_up_at = loop.time() + RETRY_S
            except (CannotWriteError, OutcomeUnknownError) as error:
                # Fenced, failed or in doubt: a new claim finds out what was written, and then the
                # command is decided again.
                if loop.time() > give_up_at:
                    raise _declined(error) from None
                logger.warning("a write is tried again: %s", error)
            except TimeoutError:
                raise timed_out("the log was not read to what was written") from None
        raise primary_unknown()

    async def _write_once(self, command: Command) -> object:
        if self._runner.phase is not Phase.RUNNING:
            await self._claim()
        reply = await _result_of(
            self._runner.submit(lambda caller: command._replace(caller=caller), self._now())
        )
        if isinstance(reply, Exception):
            raise reply
        return reply


async def _result_of(reply: object) -> object:
    """Wait for a reply; it may be an exception."""
    if not isinstance(reply, Deferred):
        return reply
    future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    reply.listen(lambda result: None if future.done() else future.set_result(result))
    return await future


def _declined(error: CannotWriteError | OutcomeUnknownError) -> DeclinedError:
    if isinstance(error, CannotWriteError):
        return store_failed(str(error))
    return timed_out(f"it is not known whether the log was written ({error})")
