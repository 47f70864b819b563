"""How many of our functions a hot request enters: a budget that keeps its path short.

Counted with `sys.setprofile`, so that it is the same on every machine. Timings are in
`bench/produce_path.py`.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.support.socketless import SocketlessConnection
from tests.support.wire import frame

if TYPE_CHECKING:
    from types import FrameType

    from tests.broker.conftest import RunningBroker
    from tests.support.wire import Wire

MakeBatch = Callable[..., bytearray]

PRODUCE_CALLS_MAX = 45
COMMIT_CALLS_MAX = 55
# Entered where a request used up its share of a turn, which depends on what else the machine does.
AT_THE_END_OF_A_SHARE = ("ClientConnection._yield_turn", "ClientConnection._pause_or_resume")


async def count_calls(broker: RunningBroker, request: bytes) -> Counter[str]:
    """Functions entered from the bytes of a request to its response, when caches are filled."""
    connection = SocketlessConnection(broker.server)
    calls: Counter[str] = Counter()

    def note(caller: FrameType, event: str, _: object) -> None:
        if event == "call" and "/penstock/" in caller.f_code.co_filename:
            calls[caller.f_code.co_qualname] += 1

    try:
        for _ in range(3):
            connection.receive(request)
            await connection.drain()  # on a busy machine its share of a turn may be used up
        before = connection.transport.sent_bytes
        sys.setprofile(note)
        try:
            connection.receive(request)
        finally:
            sys.setprofile(None)
        assert connection.transport.sent_bytes > before, "the response left in the same turn"
        await connection.drain()
    finally:
        connection.close()
    for name in AT_THE_END_OF_A_SHARE:
        del calls[name]
    return calls


def calls_of(broker: RunningBroker, request: bytes) -> Counter[str]:
    counting = count_calls(broker, request)
    return asyncio.run_coroutine_threadsafe(counting, broker.loop).result(20)


def test_a_produce_enters_few_functions(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch
) -> None:
    broker.create_topic("t")
    request = frame(
        7,
        0,
        10,
        client_id="rdkafka",
        transactional_id=None,
        acks=-1,
        timeout=30_000,
        topic_data=[
            {"name": "t", "partition_data": [{"index": 0, "records": bytes(make_batch())}]}
        ],
    )
    calls = calls_of(broker, request)
    assert calls.total() <= PRODUCE_CALLS_MAX, "\n".join(f"{n} {c}" for c, n in calls.items())


def test_a_commit_enters_few_functions(broker: RunningBroker, wire: Wire) -> None:
    broker.create_topic("t")
    wire.call(10, 4, key_type=0, coordinator_keys=["g"])
    partition = {"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}
    topics = [{"name": "t", "partitions": [partition]}]
    is_loading = True
    while is_loading:
        response = wire.call(8, 9, group_id="g", member_id="", topics=topics)
        is_loading = response.topics[0].partitions[0].error_code != 0
    request = frame(7, 8, 9, client_id="rdkafka", group_id="g", member_id="", topics=topics)
    calls = calls_of(broker, request)
    assert calls.total() <= COMMIT_CALLS_MAX, "\n".join(f"{n} {c}" for c, n in calls.items())
