"""The usual produce answer says what the general one says."""

import pytest

from penstock.protocol.answers.produce import (
    PartitionAnswer,
    TopicAnswer,
    pack_produce,
    pack_produced,
)

ROW = PartitionAnswer(7, 0, base_offset=123, log_append_time=-1, log_start_offset=99)


@pytest.mark.parametrize("version", range(9, 13))
@pytest.mark.parametrize("name", ["t", "orders.eu", "x" * 200])
def test_one_batch_taken_is_packed_alike_both_ways(version: int, name: str) -> None:
    general = pack_produce(version, [TopicAnswer(name, [ROW])])
    assert pack_produced(name, 7, base_offset=123, log_start_offset=99) == general


def test_one_batch_taken_by_a_topic_id_is_packed_alike_both_ways() -> None:
    topic_id = bytes(range(16))
    general = pack_produce(13, [TopicAnswer("", [ROW], topic_id)])
    assert pack_produced(topic_id, 7, base_offset=123, log_start_offset=99) == general
