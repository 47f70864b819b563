"""How many functions of ours a hot request enters: a budget that keeps its path short.

Counted with `sys.setprofile`, so that it says the same on every machine. Timings are in
`bench/produce_path.py`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

from tests.support.socketless import SocketlessConnection
from tests.support.wire import frame

if TYPE_CHECKING:
    from tests.broker.conftest import RunningBroker
    from tests.support.wire import Wire

MakeBatch = Callable[..., bytearray]

PRODUCE_CALLS_MAX = 45


def calls_of(broker: RunningBroker, request: bytes) -> Counter[str]:
    """Functions entered from the bytes of the second such request to its response."""
    connection = SocketlessConnection(broker.server)
    for _ in range(3):  # the first ones fill caches
        connection.receive(request)
    before = connection.transport.sent_bytes
    calls: Counter[str] = Counter()

    def note(caller: FrameType, event: str, _: object) -> None:
        if event == "call" and "/penstock/" in caller.f_code.co_filename:
            calls[caller.f_code.co_qualname] += 1

    sys.setprofile(note)
    try:
        connection.receive(request)
    finally:
        sys.setprofile(None)
    assert connection.transport.sent_bytes > before, "the response left in the same turn"
    connection.close()
    return calls


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
    calls = broker.call(lambda: calls_of(broker, request))
    assert calls.total() <= PRODUCE_CALLS_MAX, "\n".join(f"{n} {c}" for c, n in calls.items())
