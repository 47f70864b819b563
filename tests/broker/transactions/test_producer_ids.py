"""Producer ids from blocks."""

import asyncio

import pytest

from penstock.broker.coordinators import partition_of
from penstock.broker.producer_ids import BLOCK_COUNT, REFILL_BELOW, ProducerIds
from penstock.errors import ErrorCode, Refused
from penstock.model import ProducerId


class Controller:
    """Gives blocks at once, or when told to."""

    def __init__(self, *, at_once: bool) -> None:
        self.at_once = at_once
        self.given = 0
        self.pending: list[asyncio.Future[ProducerId]] = []

    def allocate(self, count: int) -> asyncio.Future[ProducerId]:
        future: asyncio.Future[ProducerId] = asyncio.get_running_loop().create_future()
        self.pending.append(future)
        if self.at_once:
            self.give(count)
        return future

    def give(self, count: int = BLOCK_COUNT) -> None:
        self.pending.pop().set_result(ProducerId(self.given))
        self.given += count


def test_ids_are_never_repeated_over_blocks() -> None:
    async def take_many() -> list[int]:
        ids = ProducerIds(Controller(at_once=True).allocate)
        return [ids.take() for _ in range(3 * BLOCK_COUNT)]

    assert asyncio.run(take_many()) == list(range(3 * BLOCK_COUNT))


def test_the_next_block_is_asked_for_before_it_is_needed() -> None:
    async def take_most() -> tuple[int, int]:
        controller = Controller(at_once=False)
        ids = ProducerIds(controller.allocate)
        with pytest.raises(Refused) as refused:
            ids.take()
        assert refused.value.code == ErrorCode.coordinator_load_in_progress
        controller.give()
        await asyncio.sleep(0)
        for _ in range(BLOCK_COUNT - REFILL_BELOW + 1):
            ids.take()
        early = len(controller.pending)
        ids.take()
        return early, len(controller.pending)

    assert asyncio.run(take_most()) == (0, 1)


def test_a_refused_block_is_asked_for_again() -> None:
    async def take_twice() -> ProducerId:
        controller = Controller(at_once=False)
        ids = ProducerIds(controller.allocate)
        with pytest.raises(Refused):
            ids.take()
        controller.pending.pop().set_exception(Refused(ErrorCode.not_controller, "away"))
        await asyncio.sleep(0)
        with pytest.raises(Refused):
            ids.take()
        controller.give()
        await asyncio.sleep(0)
        return ids.take()

    assert asyncio.run(take_twice()) == 0


@pytest.mark.parametrize(
    ("name", "partition"),
    # as Java says: (name.hashCode() & 0x7fffffff) % 50
    [("", 0), ("a", 47), ("my-transactional-id", 2), ("größe", 7), ("😀", 49)],
)
def test_an_id_belongs_where_every_client_looks_for_it(name: str, partition: int) -> None:
    assert partition_of(name, 50) == partition
