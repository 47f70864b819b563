"""A member of a classic group with any protocol type and opaque metadata and assignments.

The broker tracks the members and picks a leader; the leader makes the assignments; each member gets
its own. Used to elect one of several nodes. A generation is valid until `on_lost` is called, which
is at the latest when the session would have ended: a member that is cut off from its broker gives
up its assignment before another can get it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from penstock.errors import ErrorCode, Malformed, Refused
from penstock.link.aio import AsyncCluster
from penstock.link.operation import request_of
from penstock.link.routing import CoordinatorKind
from penstock.protocol.message import Message
from penstock.protocol.messages.classic_groups import (
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
    GroupProtocol,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeavingMember,
    MemberAssignment,
    SyncGroupRequest,
)

logger: Final = logging.getLogger(__name__)

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
_SECOND_MS: Final = 1000
_LEAVE_MS: Final = 2_000
_RESPONSE_SLACK_MS: Final = 5_000  # the response to a join waits for the rebalance timeout

# The broker does not know this member or generation: join as a new member.
_UNKNOWN_MEMBER: Final = frozenset({ErrorCode.unknown_member_id, ErrorCode.illegal_generation})
# Another broker coordinates the group: find it.
_MOVED: Final = frozenset({ErrorCode.not_coordinator, ErrorCode.coordinator_not_available})


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """Which group, and its timeouts."""

    group: str
    protocol_type: str  # of the whole group; the broker refuses members with another one
    protocol: str  # how assignments are made; the same for all members
    session_ms: int = 10_000
    rebalance_ms: int = 10_000
    heartbeat_ms: int = 3_000
    instance_id: str | None = None  # a static member: a restart causes no rebalance


@dataclass(frozen=True, slots=True)
class GroupGeneration:
    """A generation of the group, as one member knows it."""

    generation: int
    member_id: str
    leader_id: str
    assignment: bytes  # this member's own
    members: Mapping[str, bytes]  # metadata by member id; only the leader has it

    @property
    def is_leader(self) -> bool:
        return self.member_id == self.leader_id


Assigned: TypeAlias = Mapping[str, bytes]
Assign: TypeAlias = Callable[[Mapping[str, bytes]], Assigned | Awaitable[Assigned]]


class GroupMember:
    """Joins, sends heartbeats and joins again until `leave`. Uses connections of its own.

    The leader calls `assign` with every member's metadata; it returns every member's assignment.
    `on_joined` and `on_lost` alternate, and neither runs while the other does: an `on_joined` that
    still runs when the generation ends is cancelled first. Heartbeats continue while it runs.
    """

    def __init__(
        self,
        cluster: AsyncCluster,
        settings: MemberSettings,
        *,
        metadata: Callable[[], bytes],
        assign: Assign,
        on_joined: Callable[[GroupGeneration], Awaitable[None]],
        on_lost: Callable[[str], Awaitable[None]],
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._metadata = metadata
        self._assign = assign
        self._on_joined = on_joined
        self._on_lost = on_lost
        self._member_id = ""
        self._generation: GroupGeneration | None = None
        self._failed_attempts = 0
        self._rejoining = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._notifying: asyncio.Task[None] | None = None
        self._session_seconds = settings.session_ms / _SECOND_MS

    @property
    def generation(self) -> GroupGeneration | None:
        """The current generation; None while there is none."""
        return self._generation

    def start(self) -> None:
        """Start to join; returns immediately."""
        assert self._task is None, "a member is started once"
        self._task = asyncio.create_task(self._run(), name=f"member of {self._settings.group}")

    def rejoin(self) -> None:
        """Join again soon: this member's metadata, or what is to be assigned, has changed."""
        self._rejoining.set()

    async def leave(self) -> None:
        """Leave the group, so that the others need not wait for the session to end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        await self._lose("left the group")
        if self._member_id and self._settings.instance_id is None:
            with suppress(OSError, Refused, Malformed):
                leaving = LeavingMember(self._member_id, reason="the node is stopping")
                body = LeaveGroupRequest(self._settings.group, [leaving])
                await self._call(LEAVE_GROUP, body, timeout_ms=_LEAVE_MS)
        await self._cluster.close()

    async def _run(self) -> None:
        while True:
            try:
                generation, valid_until = await self._join()
                self._failed_attempts = 0
                self._generation = generation
                self._notifying = asyncio.create_task(self._notify(generation))
                reason = await self._send_heartbeats(generation, valid_until)
            except (OSError, Malformed) as failure:
                reason = str(failure)
                self._invalidate_coordinator()
            except Refused as refusal:
                reason = str(refusal)
                self._on_error(refusal.code)
            await self._lose(reason)
            await self._back_off()

    async def _notify(self, generation: GroupGeneration) -> None:
        try:
            await self._on_joined(generation)
        except Exception:
            logger.exception(
                "group %s: the callback for a joined group failed", self._settings.group
            )

    async def _join(self) -> tuple[GroupGeneration, float]:
        """The new generation, and until when it is valid without a heartbeat."""
        settings = self._settings
        self._rejoining.clear()  # what changes from here on is in the next one
        body = JoinGroupRequest(
            settings.group,
            settings.session_ms,
            self._member_id,
            settings.protocol_type,
            [GroupProtocol(settings.protocol, self._metadata())],
            settings.rebalance_ms,
            settings.instance_id,
        )
        timeout_ms = settings.rebalance_ms + _RESPONSE_SLACK_MS
        response = await self._call(JOIN_GROUP, body, version_min=5, timeout_ms=timeout_ms)
        if response.error_code == ErrorCode.member_id_required:
            self._member_id = response.member_id
            return await self._join()
        self._accept(response.error_code, "join")
        self._member_id = response.member_id
        members = {row.member_id: row.metadata for row in response.members}
        assigned = self._assign(members) if response.leader == response.member_id else {}
        assignments = assigned if isinstance(assigned, Mapping) else await assigned
        return await self._sync(response, members, assignments)

    async def _sync(
        self,
        joined: JoinGroupResponse,
        members: Mapping[str, bytes],
        assignments: Mapping[str, bytes],
    ) -> tuple[GroupGeneration, float]:
        # The session starts when this arrives at the broker, which is later than now.
        valid_until = asyncio.get_running_loop().time() + self._session_seconds
        settings = self._settings
        body = SyncGroupRequest(
            settings.group,
            joined.generation_id,
            self._member_id,
            settings.instance_id,
            settings.protocol_type,
            joined.protocol_name,
            [MemberAssignment(*row) for row in assignments.items()],
        )
        timeout_ms = settings.rebalance_ms + _RESPONSE_SLACK_MS
        response = await self._call(SYNC_GROUP, body, version_min=3, timeout_ms=timeout_ms)
        self._accept(response.error_code, "sync")
        generation = GroupGeneration(
            joined.generation_id,
            self._member_id,
            joined.leader,
            response.assignment,
            members,
        )
        return generation, valid_until

    async def _send_heartbeats(self, generation: GroupGeneration, valid_until: float) -> str:
        """Until there is a reason to join again, which is returned."""
        loop = asyncio.get_running_loop()
        while True:
            left = valid_until - loop.time()
            pause_s = min(self._settings.heartbeat_ms / _SECOND_MS, max(left, 0))
            if await self._wait_for_rejoin(pause_s):
                return "there is something else to assign"
            sent_at = loop.time()
            left = valid_until - sent_at
            if left <= 0:
                return "the session ended without a response to a heartbeat"
            code = await self._heartbeat(generation, int(left * _SECOND_MS))
            if code is ErrorCode.none:
                valid_until = sent_at + self._session_seconds
            elif code is not None:
                self._on_error(code)
                return f"the response to a heartbeat was {code.name}"

    async def _wait_for_rejoin(self, at_most_s: float) -> bool:
        try:
            async with asyncio.timeout(at_most_s):
                return await self._rejoining.wait()
        except TimeoutError:
            return False

    async def _heartbeat(self, generation: GroupGeneration, left_ms: int) -> ErrorCode | None:
        """The broker's code; None if there was no response, which decides nothing yet."""
        try:
            async with asyncio.timeout(left_ms / _SECOND_MS):
                body = HeartbeatRequest(
                    self._settings.group,
                    generation.generation,
                    generation.member_id,
                    self._settings.instance_id,
                )
                timeout_ms = min(left_ms, self._settings.heartbeat_ms)
                response = await self._call(HEARTBEAT, body, timeout_ms=timeout_ms)
        except OSError:
            return None
        except Refused as refusal:  # no coordinator at present
            return None if refusal.code.retriable else refusal.code
        code = response.error_code
        if code in _MOVED or code is ErrorCode.coordinator_load_in_progress:
            self._on_error(code)
            return None
        return code

    async def _call(
        self,
        message: Message[RequestT, ResponseT],
        body: RequestT,
        *,
        version_min: int = 0,
        timeout_ms: int,
    ) -> ResponseT:
        group = self._settings.group
        request = request_of(message, body, version_min=version_min)
        return await self._cluster.run(
            lambda routes: routes.send_to_coordinator(
                CoordinatorKind.GROUP, group, request, timeout_ms
            )
        )

    def _accept(self, code: ErrorCode, step: str) -> None:
        if code is not ErrorCode.none:
            raise Refused(code, f"{step} group {self._settings.group}: {code.name}")

    def _on_error(self, code: ErrorCode) -> None:
        if code in _UNKNOWN_MEMBER:
            self._member_id = ""
        if code in _MOVED:
            self._invalidate_coordinator()

    def _invalidate_coordinator(self) -> None:
        group = self._settings.group
        self._cluster.routes.invalidate_coordinator(CoordinatorKind.GROUP, group)

    async def _lose(self, reason: str) -> None:
        if self._generation is None:
            self._failed_attempts += 1
            if self._failed_attempts == 1:
                logger.warning("cannot join group %s yet: %s", self._settings.group, reason)
            return
        self._generation = None
        if self._notifying is not None:
            self._notifying.cancel()
            await asyncio.wait((self._notifying,))
        await self._on_lost(reason)

    async def _back_off(self) -> None:
        """After a rebalance join immediately; after failures wait longer each time."""
        if self._failed_attempts:
            pause_ms = self._cluster.routes.backoff_ms(self._failed_attempts)
            await asyncio.sleep(pause_ms / _SECOND_MS)
