"""Producing without a socket, to brokers that lose, delay and drop state, as hypothesis chooses.

The partition keeps Kafka's rule for idempotent producers: the next sequence, or one of the last
five batches again. Whatever happens on the way, the log holds every batch once, in order.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ErrorCode, Refused
from penstock.link.operation import Drive, Pause, Receive, Send
from penstock.link.routing import Routes
from penstock.link.send_batches import send_batches
from penstock.link.settings import Address, LinkSettings, UnreachableError
from penstock.model import Millis, ProducerEpoch, ProducerId, SequenceNumber, TopicPartition
from penstock.protocol.api import Api
from penstock.protocol.batch import read_header
from penstock.protocol.fields import NodeEndpoint
from penstock.protocol.messages.metadata import (
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
)
from penstock.protocol.messages.produce import ProducedPartition, ProducedTopic, ProduceResponse
from penstock.protocol.records import build_batch

VERSION = 12
PLACE = TopicPartition("orders", 0)
FATES = [
    "well",
    "well",
    "well",
    "lost before",
    "lost after",
    "not leader",
    "timed out after",
]


class Partition:
    """A log that knows one producer's last five batches."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self._recent: deque[tuple[int, int]] = deque(maxlen=5)
        self._next = 0

    def append(self, batch: memoryview) -> tuple[ErrorCode, int]:
        header = read_header(batch)
        for sequence, offset in self._recent:
            if sequence == header.base_sequence:
                return ErrorCode.none, offset
        if header.base_sequence != self._next:
            return ErrorCode.out_of_order_sequence_number, -1
        offset = len(self.values)
        self.values.append(header.base_sequence)
        self._recent.append((header.base_sequence, offset))
        self._next += 1
        return ErrorCode.none, offset


class World:
    """One broker, and a script of what becomes of each send_batches request."""

    def __init__(self, fates: list[str]) -> None:
        self.partition = Partition()
        self.now = 0
        self.under_way_most = 0
        self._under_way = 0
        self._fates = iter(fates)
        self._connection_lost = False

    def run(self, batches: list[bytes]) -> Any:
        settings = LinkSettings(retry_timeout_ms=1 << 40)
        clock = lambda: Millis(self.now)  # noqa: E731 - a clock is a name for one expression
        routes = Routes((Address("b", 1),), settings, clock, lambda: 0.5)
        drive = Drive(send_batches({PLACE: batches})(routes))
        while drive.effect is not None:
            match drive.effect:
                case Send(_, request):
                    drive.resume(self._begin(request))
                case Receive(outcome):
                    self._under_way -= isinstance(outcome, Exception | ProduceResponse)
                    if isinstance(outcome, Exception):
                        drive.fail(outcome)
                    else:
                        drive.resume(outcome)
                case Pause(duration_ms):
                    self.now += duration_ms
                    self._connection_lost = False
                    drive.resume(None)
                case unexpected:
                    raise AssertionError(unexpected)
        return drive.result

    def _begin(self, request: Any) -> Any:
        if request.api is Api.METADATA:
            return metadata()
        self._under_way += 1
        self.under_way_most = max(self.under_way_most, self._under_way)
        batch = request.body(VERSION).topics[0].partitions[0].records
        assert batch is not None
        fate = next(self._fates, "well")
        if self._connection_lost or fate == "lost before":
            self._connection_lost = True
            return UnreachableError("lost")
        if fate == "not leader":
            return response(ErrorCode.not_leader_or_follower, -1)
        code, offset = self.partition.append(batch)
        if fate == "lost after":
            self._connection_lost = True
            return UnreachableError("lost")
        if fate == "timed out after" and code is ErrorCode.none:
            return response(ErrorCode.request_timed_out, -1)
        return response(code, offset)


def response(code: ErrorCode, offset: int) -> Any:
    return ProduceResponse([ProducedTopic("orders", [ProducedPartition(0, code, offset)])])


def metadata() -> Any:
    partition = MetadataPartition(ErrorCode.none, 0, leader_id=1, leader_epoch=0)
    return MetadataResponse([NodeEndpoint(1, "b", 1)], [MetadataTopic("orders", [partition])])


def batch(sequence: int) -> bytes:
    return bytes(
        build_batch(
            [(None, b"%d" % sequence)],
            producer_id=ProducerId(9),
            producer_epoch=ProducerEpoch(0),
            base_sequence=SequenceNumber(sequence),
        )
    )


@given(st.lists(st.sampled_from(FATES), max_size=40), st.integers(1, 12))
def test_every_batch_is_written_once_and_in_order_whatever_is_lost(
    fates: list[str], count: int
) -> None:
    world = World(fates)
    offsets = world.run([batch(sequence) for sequence in range(count)])
    assert world.partition.values == list(range(count))
    assert offsets == {PLACE: list(range(count))}
    assert world.under_way_most <= 5


def test_five_requests_are_in_flight_when_nothing_fails() -> None:
    world = World([])
    world.run([batch(sequence) for sequence in range(20)])
    assert world.under_way_most == 5


def test_a_gap_in_the_sequences_is_refused_without_a_retry() -> None:
    world = World([])
    with pytest.raises(Refused, match="another writer") as refused:
        world.run([batch(0), batch(2)])
    assert refused.value.code is ErrorCode.out_of_order_sequence_number
    assert world.now == 0


def test_without_a_producer_id_one_request_is_in_flight() -> None:
    world = World([])
    plain_batch = bytes(build_batch([(None, b"x")], base_sequence=SequenceNumber(-1)))
    with pytest.raises(Refused):  # this log wants sequences; what counts is that one came
        world.run([plain_batch] * 5)
    assert world.under_way_most == 1
