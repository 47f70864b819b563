"""Request and response headers, against kio's, and frames in a buffer."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_response_schema
from kio.schema.response_header.v1.header import ResponseHeader as FlexibleResponseHeader

from penstock.errors import Malformed
from penstock.protocol.api import (
    Api,
    api_name,
    is_flexible_version,
    known_versions,
    request_schema,
)
from penstock.protocol.framing import (
    FrameSpan,
    frame_end,
    next_frame,
    read_request_header,
    response_has_tags,
    response_start,
    write_request_header,
)
from tests.support.kio_messages import encode

VERSIONS = [(key, version) for key in range(100) for version in known_versions(key)]


def test_versions_are_flexible_from_one_on() -> None:
    for api in Api:
        flexible = [is_flexible_version(api, version) for version in known_versions(api)]
        assert flexible == sorted(flexible), api_name(api)


def test_an_unknown_key_has_no_flexible_version() -> None:
    assert not is_flexible_version(99, 0)
    assert not known_versions(99)
    assert api_name(99) is None


def test_versions_without_a_schema_are_not_flexible() -> None:
    assert list(known_versions(Api.FETCH)) == list(range(4, 19))
    assert not is_flexible_version(Api.FETCH, 19)


def test_response_headers_have_tags_where_kio_has_them() -> None:
    for api_key, version in VERSIONS:
        schema = load_response_schema(api_key, version).__header_schema__
        assert response_has_tags(api_key, version) == (schema is FlexibleResponseHeader)


@settings(deadline=None, max_examples=100)
@given(
    key_and_version=st.sampled_from(VERSIONS),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.none() | st.text(max_size=20),
)
def test_request_headers_are_written_and_read_as_by_kio(
    key_and_version: tuple[int, int], correlation_id: int, client_id: str | None
) -> None:
    api_key, version = key_and_version
    written = write_request_header(
        api_key=api_key, api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    kio_header = request_schema(api_key, version).__header_schema__(  # type: ignore[attr-defined]  # messages have one
        request_api_key=api_key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    assert written == encode(kio_header)
    assert read_request_header(written + b"body") == (*key_and_version, *read_tail(written))
    assert read_request_header(written)[2:4] == (correlation_id, client_id)
    for size in range(len(written)):
        with pytest.raises(Malformed):
            read_request_header(written[:size])


def read_tail(written: bytes) -> tuple[object, ...]:
    header = read_request_header(written)
    return header.correlation_id, header.client_id, len(written)


def test_tagged_fields_of_a_request_header_are_skipped() -> None:
    written = write_request_header(api_key=3, api_version=12, correlation_id=1, client_id="c")
    newer = written[:-1] + b"\x02\x00\x03abc\x63\x00"
    assert read_request_header(newer + b"body").body_position == len(newer)


@pytest.mark.parametrize(
    "tags", [b"\x01\x00\x05ab", b"\x7f", b"\xff\xff\xff\xff\x0f", b"\x01\xff\xff\xff\xff\xff"]
)
def test_tagged_fields_that_run_past_the_frame_are_malformed(tags: bytes) -> None:
    written = write_request_header(api_key=3, api_version=12, correlation_id=1, client_id="c")
    with pytest.raises(Malformed):
        read_request_header(written[:-1] + tags)


@pytest.mark.parametrize("client_id", [b"\xff\xfe", b"\x7f\xff" + b"c", b"\x00\x01\xff"])
def test_an_invalid_client_id_is_malformed(client_id: bytes) -> None:
    written = write_request_header(api_key=3, api_version=1, correlation_id=1, client_id=None)
    with pytest.raises(Malformed):
        read_request_header(written[:-2] + client_id)


@settings(deadline=None, max_examples=200)
@given(frame=st.binary(max_size=40))
def test_any_bytes_are_a_header_or_malformed(frame: bytes) -> None:
    with suppress(Malformed):
        assert read_request_header(frame).body_position <= len(frame)


@pytest.mark.parametrize(("has_tags", "end"), [(True, b"\0"), (False, b"")])
def test_a_response_starts_with_its_size_and_number(has_tags: bool, end: bytes) -> None:
    start = response_start(7, 100, has_tags)
    assert start[8:] == end
    assert int.from_bytes(start[:4], "big") == len(start) - 4 + 100
    assert int.from_bytes(start[4:8], "big") == 7


def sized(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


@settings(deadline=None, max_examples=60)
@given(contents=st.lists(st.binary(min_size=8, max_size=30), max_size=5), cut=st.integers(0, 33))
def test_frames_are_whole_and_in_order(contents: list[bytes], cut: int) -> None:
    stream = b"".join(map(sized, contents))
    end = max(len(stream) - cut, 0)
    start, frames = 0, []
    while (frame := next_frame(stream, start, end, bytes_max=30)) is not None:
        frames.append(stream[frame.start : frame.end])
        start = frame.end
    assert frames == contents[: len(frames)]
    if cut == 0:
        assert frames == contents
    assert end - start < 4 + 30


def test_the_end_of_a_frame_is_known_before_it_has_arrived() -> None:
    assert frame_end(b"..." + sized(bytes(100)), 3, 7, bytes_max=100) == 107
    assert frame_end(b"\0\0\0", 0, 3, bytes_max=100) is None
    assert next_frame(sized(bytes(100)), 0, 104, bytes_max=100) == FrameSpan(4, 104)
    assert next_frame(sized(bytes(100)), 0, 103, bytes_max=100) is None


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 7, 101, 2**31 - 1])
def test_a_size_that_no_peer_sends_is_malformed(size: int) -> None:
    with pytest.raises(Malformed, match=f"frame of {size} bytes"):
        next_frame(size.to_bytes(4, "big", signed=True), 0, 4, bytes_max=100)
