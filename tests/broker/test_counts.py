"""What a broker counts of the changes that the controller decides."""

from itertools import pairwise

from penstock.broker.counts import TopicCounts
from penstock.broker.leadership import Leadership
from penstock.model import LeaderEpoch, NodeId

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)


def led_by(leader: NodeId, *isr: NodeId, is_recovering: bool = False) -> Leadership:
    return Leadership(leader, LeaderEpoch(0), (ONE, TWO, THREE), isr, is_recovering=is_recovering)


def test_elections_and_changes_of_the_in_sync_set_are_counted() -> None:
    counts = TopicCounts()
    steps = [
        led_by(ONE, ONE, TWO, THREE),
        led_by(TWO, TWO, THREE),
        led_by(TWO, TWO),
        led_by(THREE, THREE, is_recovering=True),  # it may lack what the others had
        led_by(THREE, THREE, ONE, is_recovering=True),
        led_by(THREE, THREE, ONE),
    ]
    for old, new in pairwise(steps):
        counts.note_change(old, new)
    total = TopicCounts()
    total.add(counts)
    assert (total.elections, total.unclean_elections) == (2, 1)
    assert (total.isr_shrinks, total.isr_expansions) == (2, 1)
