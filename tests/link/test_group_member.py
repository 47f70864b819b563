"""Members that agree on one of them, on a real broker."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest

from penstock.link.aio import AsyncCluster
from penstock.link.group_member import GroupGeneration, GroupMember, MemberSettings
from penstock.testing.embedded import EmbeddedBroker


def elect(members: Mapping[str, bytes]) -> dict[str, bytes]:
    """Every member is assigned the smallest name."""
    chosen = min(members.values())
    return dict.fromkeys(members, chosen)


class Node:
    """A member, and the callbacks it got."""

    def __init__(self, bootstrap: str, group: str, name: str) -> None:
        self.name = name
        self.events: list[str] = []
        self.cluster = AsyncCluster(bootstrap)
        self.member = GroupMember(
            self.cluster,
            MemberSettings(
                group,
                protocol_type="sr",
                protocol="v0",
                session_ms=6_000,
                rebalance_ms=3_000,
                heartbeat_ms=100,
            ),
            metadata=lambda: self.name.encode(),
            assign=elect,
            on_joined=self.joined,
            on_lost=self.lost,
        )
        self.member.start()

    async def joined(self, joined: GroupGeneration) -> None:
        self.events.append(f"joined {joined.assignment.decode()}")

    async def lost(self, _reason: str) -> None:
        self.events.append("lost")

    @property
    def primary(self) -> str | None:
        joined = self.member.generation
        return None if joined is None else joined.assignment.decode()

    async def crash(self) -> None:
        """Stop without a message to the broker."""
        task = self.member._task  # noqa: SLF001 - a crash sends nothing
        assert task is not None
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await self.cluster.close()


async def until(true: Callable[[], bool]) -> None:
    for _ in range(1500):
        if true():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it never came to pass")


async def agree(nodes: list[Node]) -> str:
    """Wait until exactly these are in one generation; the member that they elected."""

    def agreed() -> bool:
        generations = [node.member.generation for node in nodes]
        leaders = [joined for joined in generations if joined and joined.is_leader]
        return (
            all(generations)
            and len({(j.generation, j.assignment) for j in generations if j}) == 1
            and [len(leader.members) for leader in leaders] == [len(nodes)]
        )

    await until(agreed)
    chosen = nodes[0].primary
    assert chosen is not None
    return chosen


def leader_of(nodes: list[Node]) -> Node:
    (leader,) = [n for n in nodes if n.member.generation and n.member.generation.is_leader]
    return leader


def test_three_members_agree_and_agree_again_when_the_leader_leaves(server: Any) -> None:
    async def scenario() -> None:
        nodes = [Node(server.bootstrap, "leaves", name) for name in ("a", "b", "c")]
        assert await agree(nodes) == "a"
        leader = leader_of(nodes)
        await leader.member.leave()
        nodes.remove(leader)
        assert leader.events[-1] == "lost"
        assert await agree(nodes) == min(node.name for node in nodes)
        for node in nodes:
            await node.member.leave()
            assert node.primary is None

    asyncio.run(scenario())


def test_joined_and_lost_alternate(server: Any) -> None:
    async def scenario() -> None:
        first = Node(server.bootstrap, "alternate", "b")
        assert await agree([first]) == "b"
        second = Node(server.bootstrap, "alternate", "a")
        assert await agree([first, second]) == "a"
        await second.member.leave()
        assert await agree([first]) == "b"
        await first.member.leave()
        kinds = [event.split()[0] for event in first.events]
        assert kinds == ["joined", "lost"] * (len(kinds) // 2)
        assert "joined a" in first.events

    asyncio.run(scenario())


def test_a_member_whose_metadata_changed_joins_again(server: Any) -> None:
    async def scenario() -> None:
        nodes = [Node(server.bootstrap, "changes", name) for name in ("b", "c")]
        assert await agree(nodes) == "b"
        nodes[1].name = "a"
        nodes[1].member.rejoin()
        await until(lambda: all(node.primary == "a" for node in nodes))
        for node in nodes:
            await node.member.leave()

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_leader_that_crashes_is_replaced_when_its_session_ends(
    server: Any,
) -> None:
    async def scenario() -> None:
        nodes = [Node(server.bootstrap, "dies", name) for name in ("a", "b", "c")]
        await agree(nodes)
        leader = leader_of(nodes)
        await leader.crash()
        nodes.remove(leader)
        assert await agree(nodes) == min(node.name for node in nodes)
        for node in nodes:
            await node.member.leave()

    asyncio.run(scenario())


@pytest.mark.slow
def test_members_cut_off_from_their_broker_give_up_and_agree_again_later() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        nodes = [Node(broker.bootstrap, "cut", name) for name in ("a", "b")]
        await agree(nodes)
        broker.kill()
        await until(lambda: not any(node.primary for node in nodes))
        assert [node.events[-1] for node in nodes] == ["lost", "lost"]
        await asyncio.to_thread(broker.start)
        assert await agree(nodes) == "a"
        for node in nodes:
            await node.member.leave()

    with EmbeddedBroker() as own:
        asyncio.run(scenario(own))
