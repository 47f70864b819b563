"""Which brokers get the replicas of new partitions. Pure; the start of the round is an argument.

Leaders go round the unfenced brokers. A partition's other replicas follow its leader round the
brokers, on a rack that has no replica yet while there is one, and each round of leaders shifts
them, so that the partitions of one leader do not all share their followers. Fenced brokers come
last.
"""

from __future__ import annotations

from itertools import chain, zip_longest
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import ErrorCode, Refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.model import NodeId


class PlacementBroker(NamedTuple):
    """A registered broker as placement sees it."""

    node_id: NodeId
    rack: str | None
    is_fenced: bool = False


def place(
    brokers: Iterable[PlacementBroker],
    partition_count: int,
    replication_factor: int,
    *,
    start: int,
) -> list[tuple[NodeId, ...]]:
    """Replicas of each partition, the first of them its preferred leader.

    `start` is where the round begins: drawn by the caller for each topic, kept for its growth.
    """
    ordered = sorted(brokers)
    leaders = _by_turns_of_racks(broker for broker in ordered if not broker.is_fenced)
    everyone = [*leaders, *_by_turns_of_racks(broker for broker in ordered if broker.is_fenced)]
    if replication_factor > len(everyone):
        raise Refused(
            ErrorCode.invalid_replication_factor,
            f"The replication factor is {replication_factor}, and {len(everyone)} brokers are"
            " registered.",
        )
    if not leaders:
        raise Refused(ErrorCode.invalid_replication_factor, "All brokers are fenced.")
    return [
        _replicas(leaders, everyone, start + index, replication_factor)
        for index in range(partition_count)
    ]


def _replicas(
    leaders: Sequence[PlacementBroker],
    everyone: Sequence[PlacementBroker],
    turn: int,
    replication_factor: int,
) -> tuple[NodeId, ...]:
    rounds, position = divmod(turn, len(leaders))
    chosen = [leaders[position]]
    racks = {broker.rack for broker in everyone}
    shift = 1 + rounds % max(1, len(leaders) - 1)
    followers = [
        *(leaders[(position + shift + step) % len(leaders)] for step in range(len(leaders))),
        *everyone[len(leaders) :],
    ]
    while len(chosen) < replication_factor:
        used = {broker.rack for broker in chosen}
        is_new_rack_left = len(used) < len(racks)
        free = (broker for broker in followers if broker not in chosen)
        if is_new_rack_left:
            candidates = list(free)
            chosen.append(
                next((each for each in candidates if each.rack not in used), candidates[0])
            )
        else:
            chosen.append(next(free))
    return tuple(broker.node_id for broker in chosen)


def _by_turns_of_racks(brokers: Iterable[PlacementBroker]) -> list[PlacementBroker]:
    """One broker of each rack, then the next of each: neighbours are on different racks."""
    racks: dict[str | None, list[PlacementBroker]] = {}
    for broker in brokers:
        racks.setdefault(broker.rack, []).append(broker)
    rows = zip_longest(*(racks[rack] for rack in sorted(racks, key=lambda rack: rack or "")))
    return [broker for broker in chain.from_iterable(rows) if broker is not None]
