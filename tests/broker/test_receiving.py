"""Frames are found wherever reads happen to end."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker.receiving import Receiver
from penstock.errors import Malformed

SHARED_BYTES = 64


def feed(receiver: Receiver, stream: bytes, sizes: list[int]) -> list[bytes]:
    frames = []
    position = 0
    turn = 0
    while position < len(stream):
        room = receiver.room()
        assert len(room) > 0
        size = min(len(room), sizes[turn % len(sizes)], len(stream) - position)
        turn += 1
        room[:size] = stream[position : position + size]
        position += size
        receiver.on_received(size)
        while (frame := receiver.next_frame()) is not None:
            frames.append(bytes(frame))
        receiver.settle()
    return frames


@settings(deadline=None, max_examples=200)
@given(
    contents=st.lists(st.binary(min_size=8, max_size=300), min_size=1, max_size=8),
    sizes=st.lists(st.integers(1, 100), min_size=1, max_size=5),
)
def test_every_frame_comes_out_whole_and_in_order(contents: list[bytes], sizes: list[int]) -> None:
    receiver = Receiver(memoryview(bytearray(SHARED_BYTES)), 1 << 20)
    stream = b"".join(struct.pack(">i", len(content)) + content for content in contents)
    assert feed(receiver, stream, sizes) == contents
    assert receiver.pending_bytes == 0


def test_between_frames_a_connection_owns_no_buffer() -> None:
    shared = memoryview(bytearray(SHARED_BYTES))
    receiver = Receiver(shared, 1 << 20)
    feed(receiver, struct.pack(">i", 200) + bytes(200), [64])
    assert receiver.room().obj is shared.obj


def test_a_claimed_size_is_not_allocated_before_its_bytes_come() -> None:
    receiver = Receiver(memoryview(bytearray(SHARED_BYTES)), 100 << 20)
    feed(receiver, struct.pack(">i", 90 << 20) + bytes(20), [64])
    assert len(receiver.room()) < 8192


@pytest.mark.parametrize("size", [-1, 0, 7, 1025, 2**31 - 1])
def test_a_size_that_cannot_be_is_malformed(size: int) -> None:
    receiver = Receiver(memoryview(bytearray(SHARED_BYTES)), 1024)
    with pytest.raises(Malformed):
        feed(receiver, struct.pack(">i", size), [4])
