"""The conversation with bytes only: no socket, no broker."""

from contextlib import suppress
from struct import Struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ErrorCode, Malformed, Refused
from penstock.link.connection import Answer, Connection
from penstock.link.operation import plain
from penstock.link.settings import Address, LinkSettings, read_bootstrap
from penstock.protocol.framing import read_request_header, response_start, unsupported_api_versions
from penstock.protocol.kio_codec import encode, fill, request_reader, response_type

METADATA, HEARTBEAT, API_VERSIONS = 3, 12, 18
ADDRESS = Address("broker.example", 9092)
SIZE = Struct(">i")


def answer_bytes(api_key: int, version: int, number: int, **fields: Any) -> bytes:
    body = encode(fill(response_type(api_key, version), **fields))
    has_tags = api_key != API_VERSIONS and version >= {METADATA: 9, HEARTBEAT: 4}[api_key]
    return response_start(number, len(body), has_tags) + body


def deliver(connection: Connection, content: bytes, piece: int = 1 << 30) -> list[Answer]:
    """As a socket would: as much as there is room for, at most a piece at a time."""
    answers = []
    while content:
        room = connection.room()
        size = min(len(room), len(content), piece)
        room[:size] = content[:size]
        content = content[size:]
        answers += connection.received(size)
    return answers


OFFERED = [
    {"api_key": METADATA, "min_version": 0, "max_version": 12},
    {"api_key": HEARTBEAT, "min_version": 0, "max_version": 2},
    {"api_key": API_VERSIONS, "min_version": 0, "max_version": 4},
]


def opened(offered: list[dict[str, int]] | None = None) -> Connection:
    connection = Connection(ADDRESS, LinkSettings(client_id="me", frame_bytes_max=1 << 20))
    steps = connection.open()
    connection.ask(next(steps))
    greeting = answer_bytes(API_VERSIONS, 4, 0, api_keys=OFFERED if offered is None else offered)
    ((_, response),) = deliver(connection, greeting)
    with pytest.raises(StopIteration):
        steps.send(response)
    return connection


def sent(connection: Connection, api_key: int, **fields: Any) -> Any:
    """The header and the body of a request as a broker reads them."""
    asked = connection.ask(plain(api_key, **fields))
    frame = b"".join(asked.parts)
    assert SIZE.unpack_from(frame) == (len(frame) - SIZE.size,)
    header = read_request_header(frame[SIZE.size :])
    read = request_reader(api_key, header.api_version)
    return header, read(frame[SIZE.size :], header.body_position)[0]


def test_the_newest_version_both_sides_know_is_spoken() -> None:
    connection = opened()
    header, body = sent(connection, METADATA, topics=[{"name": "orders"}])
    assert (header.api_version, header.client_id) == (12, "me")
    assert body.topics[0].name == "orders"
    header, _ = sent(connection, HEARTBEAT, group_id="g", member_id="m", generation_id=1)
    assert header.api_version == 2


def test_a_version_nobody_can_speak_is_refused_with_both_ranges() -> None:
    connection = opened()
    with pytest.raises(Refused, match=r"serves heartbeat in versions 0 to 2, 3 to 4 is needed"):
        connection.ask(plain(HEARTBEAT, least=3))
    with pytest.raises(Refused, match="does not serve list_offsets") as refused:
        connection.ask(plain(2))
    assert refused.value.code is ErrorCode.unsupported_version


def test_a_broker_that_finds_the_greeting_too_new_is_greeted_as_it_likes() -> None:
    connection = Connection(ADDRESS, LinkSettings())
    steps = connection.open()
    connection.ask(next(steps))
    body = unsupported_api_versions(0, 2)
    start = response_start(0, len(body), False)
    ((_, response),) = deliver(connection, start + body)
    again = connection.ask(steps.send(response))
    assert read_request_header(b"".join(again.parts)[SIZE.size :]).api_version == 2
    ((_, response),) = deliver(connection, answer_bytes(API_VERSIONS, 2, 1, api_keys=OFFERED))
    with pytest.raises(StopIteration):
        steps.send(response)
    assert connection.version_of(plain(METADATA)) == 12


def test_answers_come_out_the_same_however_the_bytes_are_cut() -> None:
    brokers = [{"node_id": n, "host": "h" * 50, "port": 9092} for n in range(20)]
    content = b"".join(
        [
            answer_bytes(HEARTBEAT, 2, 1, error_code=ErrorCode.rebalance_in_progress),
            answer_bytes(METADATA, 12, 2, brokers=brokers, cluster_id="c"),
            answer_bytes(HEARTBEAT, 2, 3),
        ]
    )

    def received(piece: int) -> list[Answer]:
        connection = opened()
        for api_key in (HEARTBEAT, METADATA, HEARTBEAT):
            sent(connection, api_key)
        return deliver(connection, content, piece)

    whole = received(len(content))
    assert [number for number, _ in whole] == [1, 2, 3]
    assert len(whole[1].response.brokers) == 20
    for piece in range(1, len(content)):
        assert received(piece) == whole


def test_a_cut_at_any_byte_changes_nothing() -> None:
    content = answer_bytes(HEARTBEAT, 2, 1) + answer_bytes(HEARTBEAT, 2, 2)
    for cut in range(len(content)):
        connection = opened()
        sent(connection, HEARTBEAT)
        sent(connection, HEARTBEAT)
        answers = deliver(connection, content[:cut]) + deliver(connection, content[cut:])
        assert [number for number, _ in answers] == [1, 2]
        assert connection.waiting == 0


def test_a_frame_larger_than_the_scratch_area_arrives_whole() -> None:
    brokers = [{"node_id": n, "host": f"host-{n}" * 20, "port": 9092} for n in range(2000)]
    content = answer_bytes(METADATA, 12, 1, brokers=brokers) + answer_bytes(HEARTBEAT, 2, 2)
    connection = opened()
    sent(connection, METADATA)
    sent(connection, HEARTBEAT)
    answers = deliver(connection, content, 10_007)
    assert [row.host for row in answers[0].response.brokers] == [row["host"] for row in brokers]
    assert answers[1].number == 2


def test_an_answer_out_of_order_is_malformed() -> None:
    connection = opened()
    sent(connection, HEARTBEAT)
    sent(connection, HEARTBEAT)
    with pytest.raises(Malformed, match=r"broker\.example.*answer 2 where 1 was due"):
        deliver(connection, answer_bytes(HEARTBEAT, 2, 2))


def test_an_answer_to_nothing_is_malformed() -> None:
    with pytest.raises(Malformed, match="nobody asked"):
        deliver(opened(), answer_bytes(HEARTBEAT, 2, 1))


@pytest.mark.parametrize(
    "content",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x15\x03\x03\x00\x02\x02\x16",  # a TLS alert
        SIZE.pack(-1),
        SIZE.pack(3) + b"abc",
    ],
)
def test_what_is_no_broker_is_named_as_such(content: bytes) -> None:
    connection = Connection(ADDRESS, LinkSettings())
    connection.ask(next(connection.open()))
    with pytest.raises(Malformed, match=r"does not speak Kafka.*check the port.*TLS"):
        deliver(connection, content)


def test_a_frame_beyond_the_limit_is_malformed_before_memory_is_taken() -> None:
    connection = opened()
    sent(connection, HEARTBEAT)
    with pytest.raises(Malformed, match="a frame of 1048577 bytes"):
        deliver(connection, SIZE.pack((1 << 20) + 1))


@given(st.binary(max_size=200))
def test_rubbish_in_a_frame_is_malformed_or_an_answer_and_nothing_else(body: bytes) -> None:
    connection = opened()
    sent(connection, METADATA)
    with suppress(Malformed):
        ((number, response),) = deliver(connection, SIZE.pack(len(body) + 4) + SIZE.pack(1) + body)
        assert (number, type(response)) == (1, response_type(METADATA, 12))


def test_bootstrap_lists_are_read_as_clients_write_them() -> None:
    assert read_bootstrap("a:1, b:2,c") == (Address("a", 1), Address("b", 2), Address("c", 9092))
    assert read_bootstrap("[::1]:9093,::1") == (Address("::1", 9093), Address("::1", 9092))
    assert str(Address("::1", 9092)) == "[::1]:9092"
    for wrong in ("", " , ", "a:b", ":9092", "a:0", "a:70000"):
        with pytest.raises(Refused):
            read_bootstrap(wrong)
