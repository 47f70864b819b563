"""Leaders that are probably dead are not shown to clients for a while."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from penstock.broker.handlers.metadata import SETTLE_S, settled
from penstock.broker.suspected_leaders import SuspectedLeaders
from penstock.errors import ErrorCode
from penstock.model import Millis, NodeId

if TYPE_CHECKING:
    import pytest

    from tests.broker.conftest import RunningBroker
    from tests.support.wire import Wire

LEADER = NodeId(7)
SESSION_MS = Millis(1000)


def test_a_suspicion_ends_with_a_response_or_with_the_session() -> None:
    now = [Millis(0)]
    suspected = SuspectedLeaders(lambda: now[0], SESSION_MS)
    assert not suspected.current()
    suspected.on_lost(LEADER)
    assert suspected.current() == {LEADER}
    now[0] = Millis(999)
    suspected.on_lost(LEADER)  # it is still away
    assert suspected.current() == {LEADER}
    now[0] = Millis(1000)
    assert not suspected.current()
    suspected.on_lost(LEADER)
    assert not suspected.current(), "it was not fenced: only this broker does not reach it"
    suspected.on_response(LEADER)
    suspected.on_lost(LEADER)
    assert suspected.current() == {LEADER}


def leader_of(wire: Wire) -> tuple[ErrorCode, int]:
    response: Any = wire.call(3, 9, topics=[{"name": "t"}], allow_auto_topic_creation=False)
    (partition,) = response.topics[0].partitions
    return ErrorCode(partition.error_code), partition.leader_id


def test_a_suspected_leader_is_not_in_the_metadata(
    broker: RunningBroker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("t")
    assert leader_of(wire) == (ErrorCode.none, 1)
    suspected: set[NodeId] = {NodeId(1)}
    monkeypatch.setattr(SuspectedLeaders, "current", lambda _: suspected)
    assert leader_of(wire) == (ErrorCode.leader_not_available, -1)
    suspected.clear()
    assert leader_of(wire) == (ErrorCode.none, 1), "what was said meanwhile is not kept"


def test_metadata_of_a_cluster_waits_for_news_that_is_on_its_way() -> None:
    def image(*node_ids: int) -> Any:
        return SimpleNamespace(state=SimpleNamespace(brokers=dict.fromkeys(node_ids)))

    async def wait() -> list[object]:
        results: list[object] = []
        waiting = settled(image(1, 2))
        assert waiting is not None
        waiting.listen(results.append)
        assert results == []
        await asyncio.sleep(SETTLE_S * 5)
        return results

    assert settled(image(1)) is None, "a broker that is alone has all the news"
    assert asyncio.run(wait()) == [None]
