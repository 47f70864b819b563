"""A block contains the offsets that it covers; the cache has at most a number of bytes."""

from penstock.gateway.streams.block_cache import Block, BlockCache, BlockEvent
from penstock.model import Offset, TopicPartition

ORDERS = TopicPartition("orders", 0)


def block(start: int, end: int, *, partition: TopicPartition = ORDERS, size: int = 10) -> Block:
    events = [BlockEvent(Offset(offset), None, b"x" * size) for offset in range(start, end)]
    return Block(partition, Offset(start), Offset(end), events)


def test_a_block_is_returned_for_the_offsets_that_it_covers() -> None:
    cache = BlockCache(1 << 20)
    cache.add(block(5, 10))
    assert [cache.find(ORDERS, Offset(offset)) is not None for offset in (4, 5, 9, 10)] == [
        False,
        True,
        True,
        False,
    ]
    assert cache.find(TopicPartition("orders", 1), Offset(5)) is None


def test_the_least_recently_used_block_is_dropped() -> None:
    cache = BlockCache(3 * block(0, 1, size=1000).size_bytes)
    for start in range(3):
        cache.add(block(start, start + 1, size=1000))
    assert cache.find(ORDERS, Offset(0)) is not None
    cache.add(block(3, 4, size=1000))
    assert cache.find(ORDERS, Offset(1)) is None
    assert cache.find(ORDERS, Offset(0)) is not None
    assert cache.size_bytes <= cache.bytes_max


def test_a_block_larger_than_the_cache_stays_until_the_next_one() -> None:
    cache = BlockCache(100)
    cache.add(block(0, 5))
    assert cache.find(ORDERS, Offset(0)) is not None
    cache.add(block(5, 9))
    assert cache.find(ORDERS, Offset(0)) is None
    assert len(cache) == 1


def test_a_block_that_comes_again_is_counted_once() -> None:
    cache = BlockCache(1 << 20)
    cache.add(block(0, 5))
    once = cache.size_bytes
    cache.add(block(0, 5))
    assert cache.size_bytes == once


def test_the_blocks_of_a_partition_are_dropped_together() -> None:
    cache = BlockCache(1 << 20)
    cache.add(block(0, 5))
    cache.add(block(0, 5, partition=TopicPartition("payments", 0)))
    cache.drop(ORDERS)
    assert cache.find(ORDERS, Offset(0)) is None
    assert len(cache) == 1


def test_blocks_with_deleted_events_are_dropped() -> None:
    cache = BlockCache(1 << 20)
    for start in (0, 5, 10):
        cache.add(block(start, start + 5))
    cache.drop_before(ORDERS, Offset(7))
    assert [cache.find(ORDERS, Offset(offset)) is None for offset in (0, 5, 10)] == [
        True,
        True,
        False,
    ]
