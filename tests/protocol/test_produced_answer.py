"""The usual produce answer says what the general one says."""

import pytest

from penstock.protocol.answers.produce import (
    PartitionAnswer,
    TopicAnswer,
    pack_produce,
    pack_produced,
)


@pytest.mark.parametrize("version", range(9, 13))
@pytest.mark.parametrize("name", ["t", "orders.eu", "x" * 200])
def test_one_batch_taken_is_packed_alike_both_ways(version: int, name: str) -> None:
    row = PartitionAnswer(7, 0, 123, 456, 99)
    general = pack_produce(version, [TopicAnswer(name, [row])], throttle_ms=5)
    assert pack_produced(version, name, 7, 123, 456, 99, 5) == general
