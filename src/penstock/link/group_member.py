"""A member of a group whose members agree among themselves: any protocol type, opaque bytes.

The broker keeps the roll and picks a leader; the leader hands out assignments; everybody learns
theirs. Used to elect one among several nodes. What a member was told holds until `on_lost` is
called, and that happens at the latest when the session would have ended: a member cut off from its
broker stops believing before the others can have gone on without it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from penstock.errors import ErrorCode, Malformed, Refused
from penstock.link.aio import Cluster
from penstock.link.operation import plain
from penstock.link.routing import Coordinates
from penstock.protocol.api import Api

logger: Final = logging.getLogger(__name__)

_SECOND_MS: Final = 1000
_LEAVE_MS: Final = 2_000
_ANSWER_SLACK_MS: Final = 5_000  # a join is held for the rebalance timeout, then answered

# Told of another generation or another life: join again. Told of another broker: find it.
_START_OVER: Final = frozenset({ErrorCode.unknown_member_id, ErrorCode.illegal_generation})
_MOVED: Final = frozenset({ErrorCode.not_coordinator, ErrorCode.coordinator_not_available})


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Which group, and how it lives."""

    group: str
    protocol_type: str  # of the whole group; the broker refuses members of another
    protocol: str  # how assignments are made; all members must have one in common
    session_ms: int = 10_000
    rebalance_ms: int = 10_000
    heartbeat_ms: int = 3_000
    instance_id: str | None = None  # a static member: a restart does not move anything


@dataclass(frozen=True, slots=True)
class Joined:
    """What a member knows of its group until it is told otherwise."""

    generation: int
    member_id: str
    leader_id: str
    assignment: bytes  # this member's own
    members: Mapping[str, bytes]  # metadata by member id; known to the leader only

    @property
    def is_leader(self) -> bool:
        return self.member_id == self.leader_id


Assign: TypeAlias = Callable[[Mapping[str, bytes]], Mapping[str, bytes]]


class Membership:
    """Joins, keeps alive, joins again, until `leave`. Runs on its own connections.

    `assign` is called on the leader with every member's metadata and returns every member's
    assignment. `on_joined` and `on_lost` alternate, and neither runs while the other does: an
    `on_joined` that still runs when the generation ends is cancelled first. Heartbeats go on
    while it runs.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: GroupSettings,
        *,
        metadata: Callable[[], bytes],
        assign: Assign,
        on_joined: Callable[[Joined], Awaitable[None]],
        on_lost: Callable[[str], Awaitable[None]],
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._metadata = metadata
        self._assign = assign
        self._on_joined = on_joined
        self._on_lost = on_lost
        self._member_id = ""
        self._joined: Joined | None = None
        self._failed_tries = 0
        self._task: asyncio.Task[None] | None = None
        self._telling: asyncio.Task[None] | None = None
        self._session_seconds = settings.session_ms / _SECOND_MS

    @property
    def joined(self) -> Joined | None:
        """The present generation; None while there is none to believe in."""
        return self._joined

    def start(self) -> None:
        """Begin to join; returns at once."""
        assert self._task is None, "a membership is started once"
        self._task = asyncio.create_task(self._live(), name=f"member of {self._settings.group}")

    async def leave(self) -> None:
        """Leave in good order, so that the others need not wait for the session to end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        await self._lose("left the group")
        if self._member_id and self._settings.instance_id is None:
            with suppress(OSError, Refused, Malformed):
                await self._call(
                    Api.LEAVE_GROUP,
                    timeout_ms=_LEAVE_MS,
                    member_id=self._member_id,
                    members=[{"member_id": self._member_id, "reason": "the node stops"}],
                )
        await self._cluster.close()

    async def _live(self) -> None:
        while True:
            try:
                joined, believed_until = await self._join()
                self._failed_tries = 0
                self._joined = joined
                self._telling = asyncio.create_task(self._tell(joined))
                reason = await self._stay(joined, believed_until)
            except (OSError, Malformed) as failure:
                reason = str(failure)
                self._cluster.routes.doubt_coordinator(Coordinates.GROUP, self._settings.group)
            except Refused as refusal:
                reason = str(refusal)
                self._heed(refusal.code)
            await self._lose(reason)
            await self._rest()

    async def _tell(self, joined: Joined) -> None:
        try:
            await self._on_joined(joined)
        except Exception:
            logger.exception("group %s was joined, to no avail", self._settings.group)

    async def _join(self) -> tuple[Joined, float]:
        """The new generation, and until when it may be believed without a heartbeat."""
        settings = self._settings
        answer = await self._call(
            Api.JOIN_GROUP,
            least=5,
            timeout_ms=settings.rebalance_ms + _ANSWER_SLACK_MS,
            session_timeout=settings.session_ms,
            rebalance_timeout=settings.rebalance_ms,
            member_id=self._member_id,
            group_instance_id=settings.instance_id,
            protocol_type=settings.protocol_type,
            protocols=[{"name": settings.protocol, "metadata": self._metadata()}],
        )
        if answer.error_code == ErrorCode.member_id_required:
            self._member_id = answer.member_id
            return await self._join()
        self._accept(answer, "join")
        self._member_id = answer.member_id
        members = {row.member_id: bytes(row.metadata) for row in answer.members}
        assignments = self._assign(members) if answer.leader == answer.member_id else {}
        return await self._sync(answer, members, assignments)

    async def _sync(
        self, joined: Any, members: Mapping[str, bytes], assignments: Mapping[str, bytes]
    ) -> tuple[Joined, float]:
        # The broker counts the session from when this arrives, which is later than now.
        believed_until = asyncio.get_running_loop().time() + self._session_seconds
        answer = await self._call(
            Api.SYNC_GROUP,
            least=3,
            timeout_ms=self._settings.rebalance_ms + _ANSWER_SLACK_MS,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            group_instance_id=self._settings.instance_id,
            protocol_type=self._settings.protocol_type,
            protocol_name=joined.protocol_name,
            assignments=[
                {"member_id": member_id, "assignment": assignment}
                for member_id, assignment in assignments.items()
            ],
        )
        self._accept(answer, "sync")
        assignment = bytes(answer.assignment)
        told = Joined(joined.generation_id, self._member_id, joined.leader, assignment, members)
        return told, believed_until

    async def _stay(self, joined: Joined, believed_until: float) -> str:
        """Heartbeats, until there is a reason to join again."""
        loop = asyncio.get_running_loop()
        while True:
            left = believed_until - loop.time()
            await asyncio.sleep(min(self._settings.heartbeat_ms / _SECOND_MS, max(left, 0)))
            sent_at = loop.time()
            left = believed_until - sent_at
            if left <= 0:
                return "no heartbeat was answered while the session lasted"
            code = await self._beat(joined, int(left * _SECOND_MS))
            if code is ErrorCode.none:
                believed_until = sent_at + self._session_seconds
            elif code is not None:
                self._heed(code)
                return f"the heartbeat was answered with {code.name}"

    async def _beat(self, joined: Joined, left_ms: int) -> ErrorCode | None:
        """The code the broker answers; None when it could not be asked, which is no verdict yet."""
        try:
            async with asyncio.timeout(left_ms / _SECOND_MS):
                answer = await self._call(
                    Api.HEARTBEAT,
                    timeout_ms=min(left_ms, self._settings.heartbeat_ms),
                    generation_id=joined.generation,
                    member_id=joined.member_id,
                    group_instance_id=self._settings.instance_id,
                )
        except OSError:
            return None
        except Refused as refusal:  # no coordinator just now
            return None if refusal.code.retriable else refusal.code
        code = ErrorCode(answer.error_code)
        if code in _MOVED or code is ErrorCode.coordinator_load_in_progress:
            self._heed(code)
            return None
        return code

    async def _call(self, api: Api, /, *, least: int = 0, timeout_ms: int, **fields: Any) -> Any:
        request = plain(api, least=least, group_id=self._settings.group, **fields)
        return await self._cluster.run(
            lambda routes: routes.ask_coordinator(
                Coordinates.GROUP, self._settings.group, request, timeout_ms
            )
        )

    def _accept(self, answer: Any, step: str) -> None:
        code = ErrorCode(answer.error_code)
        if code is not ErrorCode.none:
            raise Refused(code, f"{step} group {self._settings.group}: {code.name}")

    def _heed(self, code: ErrorCode) -> None:
        if code in _START_OVER:
            self._member_id = ""
        if code in _MOVED:
            self._cluster.routes.doubt_coordinator(Coordinates.GROUP, self._settings.group)

    async def _lose(self, reason: str) -> None:
        if self._joined is None:
            self._failed_tries += 1
            if self._failed_tries == 1:
                logger.warning("group %s cannot be joined yet: %s", self._settings.group, reason)
            return
        self._joined = None
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.wait((self._telling,))
        await self._on_lost(reason)

    async def _rest(self) -> None:
        """A rebalance is joined at once; what fails again and again is tried more slowly."""
        if self._failed_tries:
            pause_ms = self._cluster.routes.backoff_ms(self._failed_tries)
            await asyncio.sleep(pause_ms / _SECOND_MS)
