"""The exactly-once sink while responses are lost, alone or with the broker that sent them.

What was decided stays: the sink gets the same response when it asks again. It is superseded by a
younger instance only, never by itself.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.link.blocking import BlockingCluster, BlockingLink
from penstock.link.operation import Request
from penstock.link.transactions import describe_transaction
from penstock.protocol.api import Api
from penstock.spark.batch_transaction import (
    BatchOutcome,
    Instance,
    SupersededError,
    write_transaction,
)
from penstock.testing.embedded import EmbeddedBroker
from tests.support.task_sink import TaskSink, batch, rows, visible, written

TOPIC = "sink"
LoseResponse = Callable[..., None]


@pytest.fixture
def own_broker() -> Iterator[EmbeddedBroker]:
    """A broker that may be killed."""
    with EmbeddedBroker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(60)
        yield broker


@pytest.fixture
def own_cluster(own_broker: EmbeddedBroker) -> Iterator[BlockingCluster]:
    with BlockingCluster(own_broker.bootstrap) as cluster:
        yield cluster


@pytest.fixture
def own_sink(own_broker: EmbeddedBroker) -> TaskSink:
    return TaskSink(own_broker.bootstrap, TOPIC)


@pytest.fixture
def lose_response(monkeypatch: pytest.MonkeyPatch) -> LoseResponse:
    """Lose the next response to a kind of request: it has taken effect, and the client waits."""

    def lose(api: Api, meanwhile: Callable[[], object]) -> None:
        own = BlockingLink.response
        left = [api]

        def response(
            link: BlockingLink, number: int | None, request: Request[Any], **limits: Any
        ) -> Any:
            received = own(link, number, request, **limits)
            if request.api not in left:
                return received
            left.remove(request.api)
            meanwhile()
            raise ConnectionResetError("the connection was lost")

        monkeypatch.setattr(BlockingLink, "response", response)

    return lose


def killed_and_started(broker: EmbeddedBroker) -> None:
    broker.kill()
    broker.start()


FAULTS: dict[str, Callable[[EmbeddedBroker], None]] = {
    "alone": lambda _broker: None,
    "with the broker": killed_and_started,
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("api", [Api.INIT_PRODUCER_ID, Api.END_TXN])
def test_a_batch_is_written_once_when_a_response_is_lost(
    own_broker: EmbeddedBroker,
    own_cluster: BlockingCluster,
    own_sink: TaskSink,
    lose_response: LoseResponse,
    api: Api,
    fault: str,
) -> None:
    instance = Instance()
    for batch_id in range(3):
        if batch_id == 1:
            lose_response(api, partial(FAULTS[fault], own_broker))
        write = written(own_sink, rows(10 * batch_id, 10 * batch_id + 10))
        outcome = write_transaction(
            own_cluster, batch(TOPIC, batch_id), write, topics=[TOPIC], instance=instance
        )
        assert outcome is BatchOutcome.WRITTEN
    assert visible(own_cluster, TOPIC) == list(range(30))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_batch_is_written_again_after_an_abort_whose_response_was_lost(
    own_broker: EmbeddedBroker,
    own_cluster: BlockingCluster,
    own_sink: TaskSink,
    lose_response: LoseResponse,
    fault: str,
) -> None:
    instance = Instance()

    def write_and_fail(transaction: Any) -> None:
        transaction.add_writes(own_sink.write(transaction, rows(0, 10)))
        lose_response(Api.END_TXN, partial(FAULTS[fault], own_broker))
        raise ValueError("the job failed")

    with pytest.raises(ValueError, match="the job failed"):
        write_transaction(own_cluster, batch(TOPIC), write_and_fail, instance=instance)
    write_transaction(own_cluster, batch(TOPIC), written(own_sink, rows(0, 10)), instance=instance)
    assert visible(own_cluster, TOPIC) == list(range(10))


@pytest.mark.parametrize("fault", FAULTS)
def test_the_younger_instance_wins_over_an_older_one_whose_response_was_lost(
    own_broker: EmbeddedBroker,
    own_cluster: BlockingCluster,
    own_sink: TaskSink,
    lose_response: LoseResponse,
    fault: str,
) -> None:
    older, younger = Instance(), Instance()

    def start_the_younger() -> None:
        with BlockingCluster(own_broker.bootstrap) as other:
            write_transaction(
                other, batch(TOPIC, 1), written(own_sink, rows(10, 20)), instance=younger
            )
        FAULTS[fault](own_broker)

    write_transaction(own_cluster, batch(TOPIC), written(own_sink, rows(0, 10)), instance=older)
    lose_response(Api.INIT_PRODUCER_ID, start_the_younger)
    with pytest.raises(SupersededError):
        write_transaction(
            own_cluster, batch(TOPIC, 1), written(own_sink, rows(10, 20)), instance=older
        )
    taken = own_cluster.run(describe_transaction(f"penstock.sink.{TOPIC}"))
    assert taken is not None
    assert (taken.producer_id, taken.producer_epoch) == (younger.handle or (None, 0, 0))[1:]
    write_transaction(
        own_cluster, batch(TOPIC, 2), written(own_sink, rows(20, 30)), instance=younger
    )
    assert visible(own_cluster, TOPIC) == list(range(30))
