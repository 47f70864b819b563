"""Frames, by hand, by property, and beside confluent-kafka's own reading and writing."""

import io
from uuid import UUID

import pytest
from confluent_kafka.schema_registry.serde import SchemaId as PeerId
from hypothesis import given
from hypothesis import strategies as st

from penstock.serde.errors import Reason
from penstock.serde.frame import (
    BadFrameError,
    SchemaId,
    Side,
    read_frame,
    read_indexes,
    write_header,
    write_indexes,
    write_prefix,
)

GUID = UUID("89791762-2336-186f-9674-299b90a802e2")
PATHS = st.lists(st.integers(0, 1 << 20), min_size=1, max_size=100)


@pytest.mark.parametrize(
    ("path", "written"),
    [([0], "00"), ([1], "0202"), ([0, 0], "040000"), ([1, 2, 3], "06020406"), ([64], "028001")],
)
def test_indexes_are_written_as_others_write_them(path: list[int], written: str) -> None:
    assert write_indexes(path).hex() == written
    assert read_indexes(bytes.fromhex(written)) == (tuple(path), len(written) // 2)


@given(PATHS, st.booleans())
def test_indexes_come_back(path: list[int], plain: bool) -> None:
    written = write_indexes(path, plain=plain)
    assert read_indexes(written + b"payload", plain=plain) == (tuple(path), len(written))


@given(st.integers(0, 2**32 - 1), PATHS, st.binary(max_size=20))
def test_the_peer_reads_our_prefix_and_we_the_peers(
    schema_id: int, path: list[int], payload: bytes
) -> None:
    peer = PeerId("PROTOBUF", schema_id, None, path)
    ours = write_prefix(SchemaId(schema_id), path) + payload
    assert ours == peer.id_to_bytes() + payload
    frame = read_frame(ours)
    assert (frame.schema, frame.message()) == (schema_id, (tuple(path), payload))
    seen = PeerId("PROTOBUF")
    assert seen.from_bytes(io.BytesIO(ours)).read() == payload
    assert (seen.id, seen.message_indexes) == (schema_id, path)


@given(st.uuids(), PATHS, st.binary(max_size=20))
def test_the_peer_reads_our_header_and_we_the_peers(
    guid: UUID, path: list[int], payload: bytes
) -> None:
    header = write_header(guid, path)
    assert header == PeerId("PROTOBUF", None, str(guid), path).guid_to_bytes()
    frame = read_frame(payload, [("other", b"\x00"), (Side.KEY.header_name, header)], Side.KEY)
    assert frame.in_header
    assert (frame.schema, frame.message()) == (guid, (tuple(path), payload))


def test_the_header_is_looked_at_before_the_prefix() -> None:
    content = write_prefix(SchemaId(7)) + b"x"
    headers = [(Side.VALUE.header_name, write_header(GUID))]
    assert read_frame(content, headers).schema == GUID
    assert read_frame(content, headers).payload() == content
    assert read_frame(content, headers, Side.KEY).schema == 7


def test_a_header_may_hold_an_id() -> None:
    frame = read_frame(b"x", [(Side.VALUE.header_name, write_prefix(SchemaId(9)))])
    assert (frame.schema, frame.payload()) == (9, b"x")


def test_a_header_without_a_value_is_no_frame() -> None:
    assert read_frame(write_prefix(SchemaId(7)), [(Side.VALUE.header_name, None)]).schema == 7


@pytest.mark.parametrize(
    ("content", "kind", "position"),
    [
        ("", Reason.NOT_FRAMED, 0),
        ("7b7d", Reason.NOT_FRAMED, 0),
        ("00000001", Reason.TRUNCATED_FRAME, 4),
        ("01" + "00" * 15, Reason.TRUNCATED_FRAME, 16),
    ],
)
def test_what_is_no_frame_says_why_and_where(content: str, kind: Reason, position: int) -> None:
    with pytest.raises(BadFrameError) as caught:
        read_frame(bytes.fromhex(content))
    assert (caught.value.kind, caught.value.position) == (kind, position)


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("", Reason.TRUNCATED_FRAME),
        ("04", Reason.TRUNCATED_FRAME),
        ("0480", Reason.TRUNCATED_FRAME),
        ("01", Reason.BAD_INDEXES),
        ("ca01", Reason.BAD_INDEXES),
        ("0201", Reason.BAD_INDEXES),
        ("02ffffffff7f", Reason.BAD_INDEXES),
    ],
)
def test_indexes_that_lead_nowhere_are_refused(written: str, kind: Reason) -> None:
    with pytest.raises(BadFrameError) as caught:
        read_indexes(bytes.fromhex(written))
    assert caught.value.kind == kind


def test_a_header_that_goes_on_is_refused() -> None:
    headers = [(Side.VALUE.header_name, write_header(GUID) + b"\x00!")]
    frame = read_frame(b"x", headers)
    with pytest.raises(BadFrameError, match="continues after the GUID"):
        frame.payload()
    with pytest.raises(BadFrameError, match="continues after the indexes"):
        frame.message()
