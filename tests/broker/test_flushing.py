"""The flusher at its end: what is asked of it while the broker stops is not an error."""

import asyncio

from penstock.broker.flushing import Flusher
from penstock.broker.partitions import Partition
from penstock.model import Millis
from tests.broker.conftest import RunningBroker


def test_a_sync_asked_for_while_the_broker_stops_is_left_to_the_closing_of_logs(
    broker: RunningBroker,
) -> None:
    broker.create_topic("orders")

    async def stop_and_ask() -> int:
        partition = broker.partitions.find("orders", 0)
        assert isinstance(partition, Partition)
        flusher = Flusher([partition], clock=lambda: Millis(0))
        flusher.start()
        flusher.ask_within(partition, Millis(1))
        flusher.close()
        flusher.ask(partition)
        await asyncio.sleep(0.05)  # the timer that was set before the close fires here
        return flusher.flushes

    assert asyncio.run_coroutine_threadsafe(stop_and_ask(), broker.loop).result(20) == 0
