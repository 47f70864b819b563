"""Ranges without a socket: logs with gaps, brokers that move, cut, throttle and disconnect."""

from __future__ import annotations

import uuid
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ErrorCode, Malformed, Refused
from penstock.link.fetch_range import Chunk, FetchSettings, fetch_range
from penstock.link.operation import Drive, Emit, Pause, Receive, Send
from penstock.link.routing import Routes
from penstock.link.settings import Address, LinkSettings, UnreachableError
from penstock.model import Millis, Offset, TopicId, TopicPartition
from penstock.protocol.api import Api
from penstock.protocol.batch import iterate_headers
from penstock.protocol.fields import NodeEndpoint
from penstock.protocol.messages.fetch import FetchedPartition, FetchedTopic, FetchResponse
from penstock.protocol.messages.metadata import (
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
)
from penstock.protocol.records import Record, build_batch

VERSION = 13
PLACE = TopicPartition("orders", 0)
FIRST_ID, SECOND_ID = (TopicId(uuid.UUID(int=n)) for n in (1, 2))
FATES = ["well", "well", "well", "lost", "not leader", "throttled", "nothing", "cut"]


def stored(base: int, count: int) -> bytes:
    records = [
        Record(offset=base + n, timestamp=1, key=None, value=b"v" * 40) for n in range(count)
    ]
    return bytes(build_batch(records, base_offset=Offset(base)))


class World:
    """A leader with a log, and a script with the fate of each fetch."""

    def __init__(self, batches: list[tuple[int, int]], fates: list[str]) -> None:
        self.batches = [(base, base + count, stored(base, count)) for base, count in batches]
        self.end = self.batches[-1][1] if self.batches else 0
        self.now = 0
        self.topic_id = FIRST_ID
        self.requested: list[int] = []
        self._fates = iter(fates)

    def read(self, start: int, end: int, **settings: Any) -> list[Chunk]:
        clock = lambda: Millis(self.now)  # noqa: E731 - one expression
        link_settings = LinkSettings(retry_timeout_ms=1 << 40, unknown_retry_ms=1 << 40)
        routes = Routes((Address("b", 1),), link_settings, clock, lambda: 0.5)
        operation = fetch_range(
            PLACE, Offset(start), Offset(end), settings=FetchSettings(**settings)
        )
        drive = Drive(operation(routes))
        chunks = []
        while drive.effect is not None:
            match drive.effect:
                case Send(_, request):
                    drive.resume(self._respond(request))
                case Receive(outcome) if isinstance(outcome, Exception):
                    drive.fail(outcome)
                case Receive(outcome):
                    drive.resume(outcome)
                case Pause(duration_ms):
                    self.now += duration_ms
                    drive.resume(None)
                case Emit(chunk):
                    chunks.append(chunk)
                    drive.resume(None)
        return chunks

    def _respond(self, request: Any) -> Any:
        if request.api is Api.METADATA:
            return self._metadata()
        fetch = request.body(VERSION)
        row = fetch.topics[0].partitions[0]
        self.requested.append(row.fetch_offset)
        self.now += 1
        fate = next(self._fates, "well")
        if fate == "lost":
            return UnreachableError("lost")
        code = ErrorCode.none
        if fetch.topics[0].topic != self.topic_id.bytes:
            code = ErrorCode.unknown_topic_id
        elif fate == "not leader":
            code = ErrorCode.not_leader_or_follower
        records = b""
        if fate not in ("nothing", "not leader"):
            records = self._records(row.fetch_offset, row.partition_max_bytes, cut=fate == "cut")
        partition = FetchedPartition(0, code, self.end, self.end, records=records)
        rows = [] if fate == "throttled" else [partition]
        throttle_ms = 5 if fate == "throttled" else 0
        topics = [FetchedTopic(fetch.topics[0].topic, rows)]
        return FetchResponse(topics=topics, throttle_time_ms=throttle_ms)

    def _records(self, offset: int, max_bytes: int, *, cut: bool) -> bytes:
        records = b"".join(content for _, end, content in self.batches if end > offset)
        if cut:
            return records[: len(records) // 3]
        first = next((len(content) for _, end, content in self.batches if end > offset), 0)
        return records[: max(first, max_bytes)]

    def _metadata(self) -> Any:
        partition = MetadataPartition(ErrorCode.none, 0, leader_id=1, leader_epoch=0)
        topic = MetadataTopic("orders", [partition], topic_id=self.topic_id)
        return MetadataResponse([NodeEndpoint(1, "b", 1)], [topic])


def bases(chunks: list[Chunk]) -> list[int]:
    return [h.base_offset for chunk in chunks for _, h in iterate_headers(chunk.records)]


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Batches as (base offset, count), with the gaps that compaction leaves."""
    batches, offset = [], 0
    for gap, count in draw(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6)), min_size=1)):
        batches.append((offset + gap, count))
        offset += gap + count
    return batches


@given(logs(), st.lists(st.sampled_from(FATES), max_size=20), st.data())
def test_a_range_has_every_batch_that_touches_it_once_whatever_fails(
    log: list[tuple[int, int]], fates: list[str], data: st.DataObject
) -> None:
    for _ in range(fates.count("nothing") - 2):  # three in a row count as a gap
        fates.remove("nothing")
    world = World(log, fates)
    start = data.draw(st.integers(0, world.end - 1))
    end = data.draw(st.integers(start + 1, world.end))
    chunks = world.read(start, end, chunk_bytes=data.draw(st.integers(1, 2000)), checks_crc=True)
    touched = [base for base, count in log if base < end and base + count > start]
    assert bases(chunks) == touched
    for before, after in pairwise(chunks):
        assert before.end_offset == after.start_offset


def test_the_next_chunk_is_requested_before_this_one_is_emitted() -> None:
    world = World([(0, 5), (5, 5), (10, 5)], [])
    chunks = world.read(0, 15, chunk_bytes=1)
    assert (len(chunks), world.requested) == (3, [0, 5, 10])


def test_three_empty_responses_count_as_a_gap_up_to_the_end() -> None:
    world = World([(0, 5)], [])
    world.end = 20
    assert bases(world.read(0, 20)) == [0]
    assert world.requested == [0, 5, 5, 5]


def test_waiting_for_missing_offsets_ends_after_the_allowed_time() -> None:
    world = World([(0, 5)], [])
    with pytest.raises(TimeoutError, match="replicated offsets only up to 5, and 9 did not arrive"):
        world.read(0, 9, stall_ms=50)
    assert 50 <= world.now <= 60


def test_another_topic_under_the_same_name_is_refused() -> None:
    world = World([(0, 5), (5, 5)], ["well", "not leader"])
    respond = world._respond  # noqa: SLF001 - the topic changes while it is read

    def recreated(request: Any) -> Any:
        if world.requested:
            world.topic_id = SECOND_ID
        return respond(request)

    world._respond = recreated  # type: ignore[method-assign]  # noqa: SLF001 - as above
    with pytest.raises(Refused, match="deleted and created again"):
        world.read(0, 10, chunk_bytes=1)


def test_a_corrupt_batch_is_reported_with_partition_and_offset() -> None:
    world = World([(0, 5), (5, 5)], [])
    base, end, content = world.batches[1]
    world.batches[1] = (base, end, content[:-1] + b"\1")
    with pytest.raises(Malformed, match=r"orders-0 at offset 5: .*checksum"):
        world.read(0, 10, chunk_bytes=1, checks_crc=True)
