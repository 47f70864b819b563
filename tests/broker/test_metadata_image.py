"""The image of the metadata is replaced in short steps, and as a whole."""

from uuid import UUID

from penstock.broker.metadata_image import REPLACED_PER_STEP, Changes, MetadataImage
from penstock.broker.quotas import Quotas
from penstock.coordination.controller import ClusterState
from penstock.coordination.controller.apply import apply
from penstock.coordination.controller.events import BrokerSet, PartitionState, TopicSet
from penstock.model import LeaderEpoch, NodeId, TopicId

ONE = NodeId(1)
ROW = PartitionState(ONE, LeaderEpoch(0), 0, (ONE,), (ONE,))


def state_of(names: list[str]) -> ClusterState:
    state = ClusterState()
    for number, name in enumerate(names):
        apply(state, TopicSet(name, TopicId(UUID(int=number + 1)), (ROW,)))
    return state


def replace(image: MetadataImage, state: ClusterState) -> tuple[int, Changes]:
    """How many steps it took, and what changed."""
    steps, work = 0, image.replace(state)
    while True:
        try:
            next(work)
        except StopIteration as done:
            changes: Changes = done.value
            return steps, changes
        steps += 1


def test_a_snapshot_of_many_topics_is_taken_in_steps_and_visible_after_the_last() -> None:
    image = MetadataImage(ONE, {}, Quotas(lambda: 0.0))
    image.apply([TopicSet("old", TopicId(UUID(int=9)), (ROW,))])
    names = [f"topic-{number}" for number in range(3 * REPLACED_PER_STEP)]
    work = image.replace(state_of(names))
    next(work)
    assert [topic.name for topic in image.topics()] == ["old"]
    assert image.topic("topic-0") is None
    steps, changes = replace(image, state_of(names))
    assert steps == 3
    assert sorted(changes.topics) == sorted(["old", *names])
    assert image.topic("old") is None
    assert {topic.name for topic in image.topics()} == set(names)
    assert image.topic_by_id(TopicId(UUID(int=1))) is not None


def test_an_image_shares_the_rows_of_partitions_that_are_alike() -> None:
    image = MetadataImage(ONE, {}, Quotas(lambda: 0.0))
    replace(image, state_of(["a", "b"]))
    a, b = image.topic("a"), image.topic("b")
    assert a is not None
    assert b is not None
    assert a.partitions[0] is b.partitions[0]


def test_clients_are_given_this_broker_while_none_is_live() -> None:
    image = MetadataImage(ONE, {}, Quotas(lambda: 0.0))
    one = BrokerSet(ONE, "here", 9092, None, is_fenced=True)
    two = BrokerSet(NodeId(2), "there", 9092, None, is_fenced=True)
    image.apply([one, two])
    assert [broker.node_id for broker in image.listed_brokers()] == [1]
    assert image.brokers() == ()
    image.apply([two._replace(is_fenced=False)])
    assert [broker.node_id for broker in image.listed_brokers()] == [2]
