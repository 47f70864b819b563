"""Frames are located wherever reads end."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker.receive_buffer import (
    SPARE_BYTES_MAX,
    SPARE_BYTES_MIN,
    SPARES_MAX,
    BufferPool,
    RequestReceiver,
)
from penstock.errors import Malformed

SHARED_BYTES = 64


def feed(receiver: RequestReceiver, stream: bytes, sizes: list[int]) -> list[bytes]:
    frames = []
    position = 0
    turn = 0
    while position < len(stream):
        buffer = receiver.buffer()
        assert len(buffer) > 0
        size = min(len(buffer), sizes[turn % len(sizes)], len(stream) - position)
        turn += 1
        buffer[:size] = stream[position : position + size]
        position += size
        receiver.on_received(size)
        while (frame := receiver.next_frame()) is not None:
            frames.append(bytes(frame))
        receiver.finish_turn()
    return frames


@settings(deadline=None, max_examples=200)
@given(
    contents=st.lists(st.binary(min_size=8, max_size=300), min_size=1, max_size=8),
    sizes=st.lists(st.integers(1, 100), min_size=1, max_size=5),
)
def test_every_frame_is_whole_and_in_order(contents: list[bytes], sizes: list[int]) -> None:
    receiver = RequestReceiver(BufferPool(SHARED_BYTES), 1 << 20)
    stream = b"".join(struct.pack(">i", len(content)) + content for content in contents)
    assert feed(receiver, stream, sizes) == contents
    assert receiver.pending_bytes == 0


def test_between_frames_a_connection_owns_no_buffer() -> None:
    pool = BufferPool(SHARED_BYTES)
    receiver = RequestReceiver(pool, 1 << 20)
    feed(receiver, struct.pack(">i", 200) + bytes(200), [64])
    assert receiver.buffer().obj is pool.shared.obj


def test_the_buffer_of_a_large_frame_serves_the_next_one() -> None:
    pool = BufferPool(SHARED_BYTES)
    large = struct.pack(">i", 100_000) + bytes(100_000)
    first, second = RequestReceiver(pool, 1 << 20), RequestReceiver(pool, 1 << 20)
    feed(first, large, [50_000])
    (spare,) = pool.spares
    feed(second, large[:90_000], [50_000])
    assert second.buffer().obj is spare.obj
    assert pool.spares == []
    second.reset()
    assert pool.spares == [spare]


def test_few_spare_buffers_are_kept_and_no_huge_one() -> None:
    pool = BufferPool(SHARED_BYTES)
    for size_bytes in (1000, SPARE_BYTES_MAX + 1, *[SPARE_BYTES_MIN] * 10):
        pool.give_back(memoryview(bytearray(size_bytes)))
    assert [len(spare) for spare in pool.spares] == [SPARE_BYTES_MIN] * SPARES_MAX


@settings(deadline=None, max_examples=50)
@given(
    sizes=st.lists(st.sampled_from([8, 500, 70_000, 200_000]), min_size=1, max_size=8),
    reads=st.lists(st.integers(1, 90_000), min_size=1, max_size=5),
)
def test_frames_of_two_connections_do_not_mix_in_reused_buffers(
    sizes: list[int], reads: list[int]
) -> None:
    pool = BufferPool(1 << 10)
    receivers = [RequestReceiver(pool, 1 << 20) for _ in range(2)]
    streams = [
        b"".join(struct.pack(">i", size) + fill * size for size in sizes) for fill in (b"a", b"b")
    ]
    frames: list[list[bytes]] = [[], []]
    positions = [0, 0]
    turn = 0
    while any(position < len(streams[0]) for position in positions):
        for which, receiver in enumerate(receivers):
            end = positions[which] + reads[turn % len(reads)]
            frames[which] += feed(receiver, streams[which][positions[which] : end], reads)
            positions[which] = end
        turn += 1
    assert frames == [[b"a" * size for size in sizes], [b"b" * size for size in sizes]]


def test_a_claimed_size_is_not_allocated_before_its_bytes_come() -> None:
    receiver = RequestReceiver(BufferPool(SHARED_BYTES), 100 << 20)
    feed(receiver, struct.pack(">i", 90 << 20) + bytes(20), [64])
    assert len(receiver.buffer()) < 8192


@pytest.mark.parametrize("size", [-1, 0, 7, 1025, 2**31 - 1])
def test_an_invalid_size_is_malformed(size: int) -> None:
    receiver = RequestReceiver(BufferPool(SHARED_BYTES), 1024)
    with pytest.raises(Malformed):
        feed(receiver, struct.pack(">i", size), [4])
