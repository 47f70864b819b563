"""A connection with bytes only: no socket, no broker."""

from contextlib import suppress
from struct import Struct
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ErrorCode, Malformed, Refused
from penstock.link.connection import LinkConnection, Response
from penstock.link.operation import request_of
from penstock.link.settings import Address, LinkSettings, read_bootstrap
from penstock.protocol.api import Api, is_flexible_version
from penstock.protocol.fields import NodeEndpoint
from penstock.protocol.framing import read_request_header, response_start
from penstock.protocol.message import Message
from penstock.protocol.messages.api_versions import (
    API_VERSIONS,
    ApiVersionRange,
    ApiVersionsResponse,
)
from penstock.protocol.messages.classic_groups import (
    HEARTBEAT,
    HeartbeatRequest,
    HeartbeatResponse,
)
from penstock.protocol.messages.list_offsets import LIST_OFFSETS, ListOffsetsRequest
from penstock.protocol.messages.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

ALIVE = HeartbeatRequest("g", 1, "m")
ALL_TOPICS = MetadataRequest(None)
ADDRESS = Address("broker.example", 9092)
SIZE = Struct(">i")
ResponseT = TypeVar("ResponseT")


def response_bytes(
    message: Message[Any, ResponseT], version: int, number: int, response: ResponseT
) -> bytes:
    body = message.write_response(response, version, 0)
    assert isinstance(body, bytes)
    has_tags = message.api is not Api.API_VERSIONS and is_flexible_version(message.api, version)
    return response_start(number, len(body), has_tags) + body


def heartbeat_bytes(number: int, code: ErrorCode = ErrorCode.none) -> bytes:
    return response_bytes(HEARTBEAT, 2, number, HeartbeatResponse(code))


def deliver(connection: LinkConnection, content: bytes, piece: int = 1 << 30) -> list[Response]:
    """As a socket would: as much as the buffer takes, at most a piece at a time."""
    responses = []
    while content:
        buffer = connection.buffer()
        size = min(len(buffer), len(content), piece)
        buffer[:size] = content[:size]
        content = content[size:]
        responses += connection.received(size)
    return responses


OFFERED = [
    ApiVersionRange(Api.METADATA, 0, 12),
    ApiVersionRange(Api.HEARTBEAT, 0, 2),
    ApiVersionRange(Api.API_VERSIONS, 0, 4),
]


def opened() -> LinkConnection:
    connection = LinkConnection(ADDRESS, LinkSettings(client_id="me", response_bytes_max=1 << 20))
    steps = connection.open()
    connection.write(next(steps))
    handshake = response_bytes(API_VERSIONS, 4, 0, ApiVersionsResponse(api_keys=OFFERED))
    ((_, response),) = deliver(connection, handshake)
    with pytest.raises(StopIteration):
        steps.send(response)
    return connection


def sent(
    connection: LinkConnection, message: Message[Any, Any] = HEARTBEAT, body: Any = ALIVE
) -> Any:
    """The header and the body of a request as a broker reads them."""
    outgoing = connection.write(request_of(message, body))
    frame = b"".join(outgoing.parts)
    assert SIZE.unpack_from(frame) == (len(frame) - SIZE.size,)
    header = read_request_header(frame[SIZE.size :])
    content = memoryview(frame)[SIZE.size :]
    return header, message.read_request(content, header.body_position, header.api_version)


def test_the_newest_common_version_is_used() -> None:
    connection = opened()
    header, body = sent(connection, METADATA, MetadataRequest([MetadataRequestTopic("orders")]))
    assert (header.api_version, header.client_id) == (12, "me")
    assert body.topics[0].name == "orders"
    header, _ = sent(connection)
    assert header.api_version == 2


def test_a_request_without_a_common_version_is_refused_with_both_ranges() -> None:
    connection = opened()
    with pytest.raises(Refused, match=r"serves heartbeat in versions 0 to 2, 3 to 4 is needed"):
        connection.write(request_of(HEARTBEAT, ALIVE, version_min=3))
    with pytest.raises(Refused, match="does not serve list_offsets") as refused:
        connection.write(request_of(LIST_OFFSETS, ListOffsetsRequest([])))
    assert refused.value.code is ErrorCode.unsupported_version


def test_a_broker_that_knows_only_older_api_versions_gets_its_newest() -> None:
    connection = LinkConnection(ADDRESS, LinkSettings())
    steps = connection.open()
    connection.write(next(steps))
    too_new = ApiVersionsResponse(
        ErrorCode.unsupported_version, [ApiVersionRange(Api.API_VERSIONS, 0, 2)]
    )
    ((_, response),) = deliver(connection, response_bytes(API_VERSIONS, 0, 0, too_new))
    again = connection.write(steps.send(response))
    assert read_request_header(b"".join(again.parts)[SIZE.size :]).api_version == 2
    offered = ApiVersionsResponse(api_keys=OFFERED)
    ((_, response),) = deliver(connection, response_bytes(API_VERSIONS, 2, 1, offered))
    with pytest.raises(StopIteration):
        steps.send(response)
    assert connection.version_of(request_of(METADATA, ALL_TOPICS)) == 12


def test_responses_do_not_depend_on_how_the_bytes_are_split() -> None:
    brokers = [NodeEndpoint(n, "h" * 50, 9092) for n in range(20)]
    content = b"".join(
        [
            heartbeat_bytes(1, ErrorCode.rebalance_in_progress),
            response_bytes(METADATA, 12, 2, MetadataResponse(brokers, cluster_id="c")),
            heartbeat_bytes(3),
        ]
    )

    def received(piece: int) -> list[Response]:
        connection = opened()
        sent(connection)
        sent(connection, METADATA, ALL_TOPICS)
        sent(connection)
        return deliver(connection, content, piece)

    whole = received(len(content))
    assert [number for number, _ in whole] == [1, 2, 3]
    assert len(whole[1].body.brokers) == 20
    for piece in range(1, len(content)):
        assert received(piece) == whole


def test_a_split_at_any_byte_changes_nothing() -> None:
    content = heartbeat_bytes(1) + heartbeat_bytes(2)
    for cut in range(len(content)):
        connection = opened()
        sent(connection)
        sent(connection)
        responses = deliver(connection, content[:cut]) + deliver(connection, content[cut:])
        assert [number for number, _ in responses] == [1, 2]
        assert connection.in_flight == 0


def test_a_frame_larger_than_the_shared_buffer_arrives_whole() -> None:
    brokers = [NodeEndpoint(n, f"host-{n}" * 20, 9092) for n in range(2000)]
    content = response_bytes(METADATA, 12, 1, MetadataResponse(brokers)) + heartbeat_bytes(2)
    connection = opened()
    sent(connection, METADATA, ALL_TOPICS)
    sent(connection)
    responses = deliver(connection, content, 10_007)
    assert list(responses[0].body.brokers) == brokers
    assert responses[1].number == 2


def test_a_response_out_of_order_is_malformed() -> None:
    connection = opened()
    sent(connection)
    sent(connection)
    with pytest.raises(Malformed, match=r"broker\.example.*response 2 where 1 was due"):
        deliver(connection, heartbeat_bytes(2))


def test_a_response_without_a_request_is_malformed() -> None:
    with pytest.raises(Malformed, match="response 1 to no request"):
        deliver(opened(), heartbeat_bytes(1))


@pytest.mark.parametrize(
    "content",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x15\x03\x03\x00\x02\x02\x16",  # a TLS alert
        SIZE.pack(-1),
        SIZE.pack(3) + b"abc",
    ],
)
def test_a_server_that_is_not_a_broker_is_reported(content: bytes) -> None:
    connection = LinkConnection(ADDRESS, LinkSettings())
    connection.write(next(connection.open()))
    with pytest.raises(Malformed, match=r"does not speak the Kafka protocol.*check the port.*TLS"):
        deliver(connection, content)


def test_a_frame_beyond_the_limit_is_malformed_before_memory_is_allocated() -> None:
    connection = opened()
    sent(connection)
    with pytest.raises(Malformed, match="frame of 1048577 bytes"):
        deliver(connection, SIZE.pack((1 << 20) + 1))


@given(st.binary(max_size=200))
def test_random_bytes_in_a_frame_are_malformed_or_a_response(body: bytes) -> None:
    connection = opened()
    sent(connection, METADATA, ALL_TOPICS)
    with suppress(Malformed):
        ((number, response),) = deliver(connection, SIZE.pack(len(body) + 4) + SIZE.pack(1) + body)
        assert (number, type(response)) == (1, MetadataResponse)


def test_bootstrap_lists_are_read_as_kafka_clients_write_them() -> None:
    assert read_bootstrap("a:1, b:2,c") == (Address("a", 1), Address("b", 2), Address("c", 9092))
    assert read_bootstrap("[::1]:9093,::1") == (Address("::1", 9093), Address("::1", 9092))
    assert str(Address("::1", 9092)) == "[::1]:9092"
    for invalid in ("", " , ", "a:b", ":9092", "a:0", "a:70000"):
        with pytest.raises(Refused):
            read_bootstrap(invalid)
