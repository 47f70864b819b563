"""Compression: what other clients write is decompressed, within limits for any input."""

import gzip
import tracemalloc
from contextlib import suppress
from time import thread_time

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import Malformed
from penstock.protocol.compression import (
    HEADERS_MAX,
    Codec,
    compress,
    decompress,
    decompressed_size_limit,
    lz4_size_limit,
    zstd_size_limit,
)

PACKED = [codec for codec in Codec if codec is not Codec.NONE]
TEXT = b"the quick brown fox " * 5_000
LIMIT_BYTES = 1 << 20


@pytest.mark.parametrize("codec", list(Codec))
@settings(deadline=None, max_examples=25)
@given(raw=st.binary(max_size=300), repeat=st.sampled_from([0, 1, 3, 700]))
def test_compressed_bytes_are_decompressed(codec: Codec, raw: bytes, repeat: int) -> None:
    packed = compress(codec, raw * repeat)
    assert bytes(decompress(codec, packed, max_bytes=len(raw) * repeat)) == raw * repeat


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_higher_level_is_decompressed_to_the_same(codec: Codec) -> None:
    assert bytes(decompress(codec, compress(codec, TEXT, level=9), max_bytes=LIMIT_BYTES)) == TEXT


def test_snappy_is_written_as_a_xerial_stream_of_32_kb_blocks() -> None:
    packed = bytes(compress(Codec.SNAPPY, TEXT))
    assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    position, opened = 16, []
    while position < len(packed):
        size = int.from_bytes(packed[position : position + 4], "big")
        block = packed[position + 4 : position + 4 + size]
        opened.append(bytes(cramjam.snappy.decompress_raw(block)))
        position += 4 + size
    assert {len(block) for block in opened[:-1]} == {32 * 1024}
    assert b"".join(opened) == TEXT


def test_a_raw_snappy_block_is_decompressed() -> None:
    """librdkafka and franz-go write no stream around the block."""
    packed = bytes(cramjam.snappy.compress_raw(TEXT))
    assert bytes(decompress(Codec.SNAPPY, packed, max_bytes=LIMIT_BYTES)) == TEXT


@pytest.mark.parametrize("codec", PACKED)
def test_concatenated_streams_are_decompressed_as_one(codec: Codec) -> None:
    packed = bytes(compress(codec, TEXT)) * 3
    assert bytes(decompress(codec, packed, max_bytes=LIMIT_BYTES)) == TEXT * 3


def test_gzip_of_the_standard_library_is_decompressed() -> None:
    assert bytes(decompress(Codec.GZIP, gzip.compress(TEXT), max_bytes=LIMIT_BYTES)) == TEXT


def test_streamed_frames_without_a_content_size_are_decompressed() -> None:
    """Java streams into its encoders: many blocks, and no size in the frame's header."""
    for codec, encoder in (
        (Codec.ZSTD, cramjam.zstd.Compressor()),
        (Codec.LZ4, cramjam.lz4.Compressor()),
    ):
        pieces = []
        for start in range(0, len(TEXT), 1_000):
            encoder.compress(TEXT[start : start + 1_000])
            pieces.append(bytes(encoder.flush()))
        pieces.append(bytes(encoder.finish()))
        assert bytes(decompress(codec, b"".join(pieces), max_bytes=LIMIT_BYTES)) == TEXT


def test_skippable_frames_are_skipped() -> None:
    skippable = bytes.fromhex("502a4d18") + (5).to_bytes(4, "little") + b"hello"
    packed = skippable + bytes(compress(Codec.ZSTD, TEXT)) + skippable
    assert bytes(decompress(Codec.ZSTD, packed, max_bytes=LIMIT_BYTES)) == TEXT


@pytest.mark.parametrize("codec", list(Codec))
def test_one_byte_too_many_is_refused(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    assert len(decompress(codec, packed, max_bytes=len(TEXT))) == len(TEXT)
    with pytest.raises(Malformed):
        decompress(codec, packed, max_bytes=len(TEXT) - 1)


@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_is_refused_without_going_off(codec: Codec) -> None:
    bomb = bytes(compress(codec, bytes(64 << 20)))
    tracemalloc.start()
    try:
        with pytest.raises(Malformed):
            decompress(codec, bomb, max_bytes=1 << 19)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 << 20


@pytest.mark.parametrize("codec", PACKED)
def test_no_more_is_allocated_than_the_limit_says(codec: Codec) -> None:
    bomb = bytes(compress(codec, bytes(64 << 20)))
    with suppress(Malformed):  # snappy states its size
        assert decompressed_size_limit(codec, bomb, max_bytes=1 << 20) <= 1 << 20
    with pytest.raises(Malformed):
        decompress(codec, bomb, max_bytes=1 << 20)


def test_many_empty_gzip_members_cost_linear_time() -> None:
    members = gzip.compress(b"", mtime=0) * 200_000
    began_s = thread_time()
    assert len(decompress(Codec.GZIP, members, max_bytes=LIMIT_BYTES)) == 0
    assert thread_time() - began_s < 5  # each one copying the rest would take a minute


@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.LZ4])
def test_a_stream_with_more_frames_than_are_counted_is_decompressed(codec: Codec) -> None:
    packed = bytes(compress(codec, b"x")) * (HEADERS_MAX + 1)
    assert decompressed_size_limit(codec, packed, max_bytes=LIMIT_BYTES) == LIMIT_BYTES
    assert bytes(decompress(codec, packed, max_bytes=LIMIT_BYTES)) == b"x" * (HEADERS_MAX + 1)


def test_a_snappy_stream_of_many_tiny_blocks_is_malformed() -> None:
    stream = bytes(compress(Codec.SNAPPY, b""))
    block = bytes(cramjam.snappy.compress_raw(b"x"))
    piece = len(block).to_bytes(4, "big") + block
    assert (
        bytes(decompress(Codec.SNAPPY, stream + piece * 1000, max_bytes=LIMIT_BYTES)) == b"x" * 1000
    )
    with pytest.raises(Malformed, match="too many blocks"):
        decompress(Codec.SNAPPY, stream + piece * 2000, max_bytes=LIMIT_BYTES)


def test_a_snappy_block_with_an_invalid_size_is_refused() -> None:
    for claim in (b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\xff\x01", b"\x80"):
        with pytest.raises(Malformed):
            decompress(Codec.SNAPPY, claim + b"rubbish", max_bytes=LIMIT_BYTES)


@pytest.mark.parametrize("codec", PACKED)
def test_every_truncation_is_malformed(codec: Codec) -> None:
    packed = bytes(compress(codec, b"some text, some more text, " * 10))
    # A xerial stream has no end mark: cut between its blocks it is a shorter one.
    whole = {16} if codec is Codec.SNAPPY else set()
    for size in range(len(packed)):
        if size not in whole:
            with pytest.raises(Malformed):
                decompress(codec, packed[:size], max_bytes=LIMIT_BYTES)


@pytest.mark.parametrize("codec", PACKED)
def test_every_flipped_byte_opens_within_bounds_or_is_malformed(codec: Codec) -> None:
    packed = bytes(compress(codec, b"some text, some more text, " * 10))
    for position in range(len(packed)):
        for mask in (0x01, 0x10, 0x80, 0xFF):
            flipped = bytearray(packed)
            flipped[position] ^= mask
            with suppress(Malformed):
                assert len(decompress(codec, flipped, max_bytes=1_000)) <= 1_000


@settings(deadline=None, max_examples=200)
@given(codec=st.integers(-1, 8), rubbish=st.binary(max_size=100))
def test_random_bytes_are_malformed(codec: int, rubbish: bytes) -> None:
    magics = (b"", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"\x1f\x8b\x08", b"\x82SNAPPY\x00")
    for magic in magics:
        with suppress(Malformed):
            decompress(codec, magic + rubbish, max_bytes=1_000)


@settings(deadline=None, max_examples=50)
@given(raw=st.binary(max_size=400), repeat=st.sampled_from([1, 50, 2_000]))
def test_size_limits_are_never_below_the_size(raw: bytes, repeat: int) -> None:
    content = raw * repeat
    zstd = memoryview(cramjam.zstd.compress(content)).cast("B")
    lz4 = memoryview(cramjam.lz4.compress(content)).cast("B")
    assert len(content) <= zstd_size_limit(zstd) <= len(content) + 128 * 1024
    assert len(content) <= lz4_size_limit(lz4) <= len(content) + (4 << 20)


def test_lz4_blocks_are_independent() -> None:
    """Java's reader refuses a frame whose blocks refer to earlier ones."""
    flags = bytes(compress(Codec.LZ4, TEXT))[4]
    assert flags & 0x20


def test_lz4_without_a_level_is_the_fast_mode_as_in_other_clients() -> None:
    text = b"".join(b"order %d of customer %d;" % (n, n * 7919 % 100_003) for n in range(20_000))
    sizes = [len(compress(Codec.LZ4, text, level)) for level in (None, 0, 4)]
    assert sizes[0] == sizes[1] > sizes[2]
