"""Members that agree on one of them, on a real broker."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest

from penstock.link.aio import Cluster
from penstock.link.group_member import GroupSettings, Joined, Membership
from penstock.testing.embedded import EmbeddedBroker


def elect(members: Mapping[str, bytes]) -> dict[str, bytes]:
    """Everybody is told the least name."""
    chosen = min(members.values())
    return dict.fromkeys(members, chosen)


class Node:
    """A member, and what it was told."""

    def __init__(self, bootstrap: str, group: str, name: str) -> None:
        self.name = name
        self.events: list[str] = []
        self.cluster = Cluster(bootstrap)
        self.membership = Membership(
            self.cluster,
            GroupSettings(
                group,
                protocol_type="sr",
                protocol="v0",
                session_ms=6_000,
                rebalance_ms=3_000,
                heartbeat_ms=100,
            ),
            metadata=name.encode,
            assign=elect,
            on_joined=self.joined,
            on_lost=self.lost,
        )
        self.membership.start()

    async def joined(self, joined: Joined) -> None:
        self.events.append(f"joined {joined.assignment.decode()}")

    async def lost(self, reason: str) -> None:
        self.events.append("lost")

    @property
    def primary(self) -> str | None:
        joined = self.membership.joined
        return None if joined is None else joined.assignment.decode()

    async def crash(self) -> None:
        """Stop without a word to the broker."""
        task = self.membership._task  # noqa: SLF001 - a crash asks nobody
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
    """Wait until all of them, and only they, are in one generation; whom they chose."""

    def agreed() -> bool:
        told = [node.membership.joined for node in nodes]
        leaders = [joined for joined in told if joined and joined.is_leader]
        return (
            all(told)
            and len({(j.generation, j.assignment) for j in told if j}) == 1
            and [len(leader.members) for leader in leaders] == [len(nodes)]
        )

    await until(agreed)
    chosen = nodes[0].primary
    assert chosen is not None
    return chosen


def leader_of(nodes: list[Node]) -> Node:
    (leader,) = [n for n in nodes if n.membership.joined and n.membership.joined.is_leader]
    return leader


def test_three_members_agree_and_go_on_when_the_leader_leaves(server: Any) -> None:
    async def scenario() -> None:
        nodes = [Node(server.bootstrap, "leaves", name) for name in ("a", "b", "c")]
        assert await agree(nodes) == "a"
        leader = leader_of(nodes)
        await leader.membership.leave()
        nodes.remove(leader)
        assert leader.events[-1] == "lost"
        assert await agree(nodes) == min(node.name for node in nodes)
        for node in nodes:
            await node.membership.leave()
            assert node.primary is None

    asyncio.run(scenario())


def test_joined_and_lost_alternate(server: Any) -> None:
    async def scenario() -> None:
        first = Node(server.bootstrap, "alternate", "b")
        assert await agree([first]) == "b"
        second = Node(server.bootstrap, "alternate", "a")
        assert await agree([first, second]) == "a"
        await second.membership.leave()
        assert await agree([first]) == "b"
        await first.membership.leave()
        kinds = [event.split()[0] for event in first.events]
        assert kinds == ["joined", "lost"] * (len(kinds) // 2)
        assert "joined a" in first.events

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_leader_that_dies_without_a_word_is_replaced_when_its_session_ends(
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
            await node.membership.leave()

    asyncio.run(scenario())


@pytest.mark.slow
def test_members_cut_off_from_their_broker_stop_believing_and_agree_again_after() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        nodes = [Node(broker.bootstrap, "cut", name) for name in ("a", "b")]
        await agree(nodes)
        broker.kill()
        await until(lambda: not any(node.primary for node in nodes))
        assert [node.events[-1] for node in nodes] == ["lost", "lost"]
        await asyncio.to_thread(broker.start)
        assert await agree(nodes) == "a"
        for node in nodes:
            await node.membership.leave()

    with EmbeddedBroker() as own:
        asyncio.run(scenario(own))
