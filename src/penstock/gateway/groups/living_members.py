"""All HTTP members of this process: who they are, and who was silent for too long."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from penstock.gateway.errors import GatewayError, not_found, too_many
from penstock.gateway.gateway_node import GatewayNode
from penstock.gateway.groups.group_quarantine import GroupQuarantine
from penstock.gateway.groups.polled_member import PolledMember, PolledSubscription

_WATCH_S: Final = 0.25


class Members:
    """Members by group and name; at most `members_max`."""

    def __init__(self, node: GatewayNode, quarantine: GroupQuarantine) -> None:
        self._node = node
        self._quarantine = quarantine
        self._members: dict[tuple[str, str], PolledMember] = {}
        self._watching: asyncio.Task[None] | None = None
        node.on_stop(self.close)

    def __len__(self) -> int:
        return len(self._members)

    async def join(self, subscription: PolledSubscription) -> PolledMember:
        """A new member; one with the same name that lives here is taken over."""
        key = subscription.reads.group, subscription.name
        limit = self._node.settings.members_max
        if key not in self._members and len(self._members) >= limit:
            raise too_many("too_many_members", f"{limit} members are served here; try again later")
        member = PolledMember(self._node, self._quarantine, subscription)
        before = self._members.get(key)
        self._members[key] = member
        if before is not None:
            await before.leave(taken_over=True)
        try:
            await member.start()
        except BaseException:
            self._members.pop(key, None)
            raise
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())
        return member

    def find(self, group: str, name: str) -> PolledMember:
        """A member that lives here; 404 says what to do."""
        member = self._members.get((group, name))
        if member is None:
            raise unknown_member(group, name)
        return member

    @asynccontextmanager
    async def using(self, group: str, name: str) -> AsyncIterator[PolledMember]:
        """A member, which is not silent meanwhile."""
        member = self.find(group, name)
        member.requests += 1
        try:
            yield member
        finally:
            member.requests -= 1
            member.used_at_s = asyncio.get_running_loop().time()

    async def remove(self, group: str, name: str) -> None:
        """The member leaves its group."""
        member = self.find(group, name)
        del self._members[group, name]
        await member.leave()

    async def close(self) -> None:
        """All members leave."""
        if self._watching is not None:
            self._watching.cancel()
        members, self._members = list(self._members.values()), {}
        await asyncio.gather(*(member.leave() for member in members))

    async def _watch(self) -> None:
        """Remove those that were silent for longer than their session."""
        while True:
            await asyncio.sleep(_WATCH_S)
            now_s = asyncio.get_running_loop().time()
            for key, member in list(self._members.items()):
                silent_ms = (now_s - member.used_at_s) * 1000
                if not member.requests and silent_ms > member.subscription.reads.session_ms:
                    self._members.pop(key, None)
                    await member.leave()


def new_name() -> str:
    """A name for a member that has none."""
    return f"http-{uuid.uuid4().hex[:16]}"


def unknown_member(group: str, name: str) -> GatewayError:
    return not_found(
        "member_unknown",
        f"member {name!r} of group {group!r} is not served here: it was silent for longer than its "
        f"session, it left, or the gateway restarted. Subscribe again: POST "
        f"/consumer-groups/{group}/subscribe, and read on from the committed offsets",
    )
