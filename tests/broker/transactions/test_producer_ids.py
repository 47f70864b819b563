"""Producer ids from blocks."""

import pytest

from penstock.broker.coordinators import partition_of
from penstock.broker.producer_ids import REFILL_BELOW, ProducerIds
from penstock.errors import ErrorCode, Refused
from penstock.machine import Deferred

BLOCK_COUNT = 1000


class Controller:
    """Allocates blocks immediately, or when released."""

    def __init__(self, *, at_once: bool) -> None:
        self.at_once = at_once
        self.given = 0
        self.pending: list[Deferred[object]] = []

    def allocate(self) -> object:
        deferred: Deferred[object] = Deferred()
        self.pending.append(deferred)
        if self.at_once:
            self.give()
        return deferred

    def give(self) -> None:
        self.pending.pop().resolve(range(self.given, self.given + BLOCK_COUNT))
        self.given += BLOCK_COUNT


def test_ids_are_never_repeated_over_blocks() -> None:
    ids = ProducerIds(Controller(at_once=True).allocate)
    assert [ids.take() for _ in range(3 * BLOCK_COUNT)] == list(range(3 * BLOCK_COUNT))


def test_the_next_block_is_requested_before_it_is_needed() -> None:
    controller = Controller(at_once=False)
    ids = ProducerIds(controller.allocate)
    with pytest.raises(Refused) as refused:
        ids.take()
    assert refused.value.code == ErrorCode.coordinator_load_in_progress
    controller.give()
    for _ in range(BLOCK_COUNT - REFILL_BELOW + 1):
        ids.take()
    assert controller.pending == []
    ids.take()
    assert len(controller.pending) == 1


def test_a_refused_block_is_requested_again() -> None:
    controller = Controller(at_once=False)
    ids = ProducerIds(controller.allocate)
    with pytest.raises(Refused):
        ids.take()
    controller.pending.pop().resolve(Refused(ErrorCode.not_controller, "away"))
    with pytest.raises(Refused):
        ids.take()
    controller.give()
    assert ids.take() == 0


@pytest.mark.parametrize(
    ("name", "partition"),
    # as Java says: (name.hashCode() & 0x7fffffff) % 50
    [("", 0), ("a", 47), ("my-transactional-id", 2), ("größe", 7), ("😀", 49)],
)
def test_an_id_belongs_where_every_client_looks_for_it(name: str, partition: int) -> None:
    assert partition_of(name, 50) == partition
