"""A feed frames what is cached after its position, once and in order."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.events import UnreadableRecord
from penstock.gateway.streams.block_cache import Block, BlockCache, BlockEvent
from penstock.gateway.streams.feed import CHUNK_LIMIT, Feed, Subscription
from penstock.gateway.streams.resume_id import read_resume_id
from penstock.gateway.streams.stream_credit import SendLimit
from penstock.gateway.streams.stream_frames import StreamForm
from penstock.model import Offset, TopicPartition
from penstock.protocol.records import Record
from penstock.serde.errors import DecodeError, Reason
from penstock.serde.frame import Side

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
BOTH = Subscription(StreamForm.SSE, (FIRST, SECOND))


def text(partition: TopicPartition, offset: int) -> bytes:
    return msgspec.json.encode({"partition": partition.partition, "offset": offset})


def block(partition: TopicPartition, offsets: list[int], end: int | None = None) -> Block:
    events = [
        BlockEvent(Offset(offset), b"k%d" % (offset % 2), text(partition, offset))
        for offset in offsets
    ]
    return Block(partition, Offset(offsets[0]), Offset(end or offsets[-1] + 1), events)


def events_of(payload: bytes) -> list[tuple[str, int, int]]:
    """Id, partition and offset of each event of an HTTP chunk."""
    size, _, rest = payload.partition(b"\r\n")
    assert rest.endswith(b"\r\n")
    assert len(rest) - 2 == int(size, 16)
    events = []
    for part in rest[:-2].decode().split("\n\n")[:-1]:
        id_line, data_line = part.split("\n")
        event = msgspec.json.decode(data_line.removeprefix("data: "))
        events.append((id_line.removeprefix("id: "), event["partition"], event["offset"]))
    return events


def test_nothing_cached_gives_no_chunk_and_is_requested() -> None:
    cache = BlockCache(1 << 20)
    feed = Feed(BOTH, (Offset(0), Offset(5)))
    assert feed.take(cache.find, CHUNK_LIMIT) is None
    assert list(feed.requested(cache.find)) == [(FIRST, 0), (SECOND, 5)]


def test_the_block_after_a_cached_one_is_requested_before_it_is_needed() -> None:
    cache = BlockCache(1 << 20)
    cache.add(block(FIRST, [0, 1, 2]))
    feed = Feed(Subscription(StreamForm.SSE, (FIRST,)), (Offset(0),))
    assert list(feed.requested(cache.find)) == [(FIRST, 3)]


def test_unreadable_events_are_beside_the_chunk_of_a_subscription_that_hides_them() -> None:
    error = DecodeError(Reason.UNKNOWN_SCHEMA, "no schema 7")
    unreadable = UnreadableRecord(Record(offset=1), Side.VALUE, error)
    events = [
        BlockEvent(Offset(0), None, text(FIRST, 0)),
        BlockEvent(Offset(1), None, text(FIRST, 1), unreadable),
    ]
    cache = BlockCache(1 << 20)
    cache.add(Block(FIRST, Offset(0), Offset(2), events))
    for hides, offsets, beside in ((False, [0, 1], ()), (True, [0], ((FIRST, unreadable),))):
        subscription = Subscription(StreamForm.SSE, (FIRST,), None, hides)
        chunk = Feed(subscription, (Offset(0),)).take(cache.find, CHUNK_LIMIT)
        assert chunk is not None
        assert [offset for _, _, offset in events_of(chunk.payload)] == offsets
        assert chunk.unreadable == beside
        assert chunk.after == (2,)


def test_an_id_is_the_position_after_its_event() -> None:
    cache = BlockCache(1 << 20)
    cache.add(block(FIRST, [3, 5]))
    cache.add(block(SECOND, [7]))
    feed = Feed(BOTH, (Offset(3), Offset(7)))
    chunk = feed.take(cache.find, CHUNK_LIMIT)
    assert chunk is not None
    seen = {FIRST: 3, SECOND: 7}
    for position_id, partition, offset in events_of(chunk.payload):
        seen[TopicPartition("orders", partition)] = offset + 1
        assert read_resume_id(position_id, ["orders"]) == seen
    assert (chunk.records, chunk.before, chunk.after) == (3, (3, 7), (6, 8))


def test_a_gap_at_the_end_of_a_block_moves_the_position() -> None:
    cache = BlockCache(1 << 20)
    cache.add(block(FIRST, [0, 1], end=10))
    feed = Feed(Subscription(StreamForm.SSE, (FIRST,)), (Offset(0),))
    chunk = feed.take(cache.find, CHUNK_LIMIT)
    assert chunk is not None
    assert chunk.after == (10,)


def test_a_record_larger_than_the_room_is_sent_alone() -> None:
    cache = BlockCache(1 << 20)
    cache.add(block(FIRST, [0, 1]))
    feed = Feed(Subscription(StreamForm.SSE, (FIRST,)), (Offset(0),))
    chunk = feed.take(cache.find, SendLimit(10, 1))
    assert chunk is not None
    assert (chunk.records, chunk.after) == (1, (1,))


def test_a_key_excludes_events_and_the_position_moves_past_them() -> None:
    cache = BlockCache(1 << 20)
    cache.add(block(FIRST, [1, 3, 5]))
    feed = Feed(Subscription(StreamForm.SSE, (FIRST,), b"k0"), (Offset(1),))
    chunk = feed.take(cache.find, CHUNK_LIMIT)
    assert chunk is not None
    assert (chunk.payload, chunk.records, chunk.after) == (b"", 0, (6,))


def test_partitions_take_turns_when_not_all_fits() -> None:
    cache = BlockCache(1 << 20)
    cache.add(block(FIRST, list(range(6))))
    cache.add(block(SECOND, list(range(6))))
    feed = Feed(BOTH, (Offset(0), Offset(0)))
    firsts = []
    for _ in range(4):
        chunk = feed.take(cache.find, SendLimit(3, 1000))
        assert chunk is not None
        firsts.append(events_of(chunk.payload)[0][1])
    assert set(firsts) == {0, 1}
    assert feed.offsets == [6, 6]


@given(
    st.lists(st.integers(1, 8), min_size=1, max_size=6),
    st.lists(st.builds(SendLimit, st.integers(1, 10), st.integers(1, 300)), min_size=1, max_size=5),
)
def test_every_event_comes_once_and_in_order_whatever_the_limit(
    sizes: list[int], limits: list[SendLimit]
) -> None:
    cache = BlockCache(1 << 20)
    end = 0
    for size in sizes:
        cache.add(block(FIRST, list(range(end, end + size))))
        end += size
    feed = Feed(Subscription(StreamForm.SSE, (FIRST,)), (Offset(0),))
    taken: list[int] = []
    step = 0
    while (chunk := feed.take(cache.find, limits[step % len(limits)])) is not None:
        assert chunk.records <= limits[step % len(limits)].records
        taken += [offset for _, _, offset in events_of(chunk.payload)]
        step += 1
    assert taken == list(range(end))
