"""Requests in the same words again: answered short, and never otherwise than at length."""

import socket
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

Record = Callable[..., str]


class Wire:
    """A connection, byte by byte."""

    def __init__(self, url: str) -> None:
        host, port = url.removeprefix("http://").split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        self._stream = self.socket.makefile("rb")

    def send(self, raw: bytes) -> None:
        self.socket.sendall(raw)

    def answer(self) -> tuple[bytes, dict[bytes, bytes], bytes]:
        """The status line, the headers but for the date, and the body of the next answer."""
        status = self._stream.readline().strip()
        headers = {}
        while line := self._stream.readline().strip():
            name, _, value = line.partition(b": ")
            headers[name] = value
        assert headers.pop(b"date").endswith(b" GMT")
        return status, headers, self._stream.read(int(headers[b"content-length"]))

    def ask(self, raw: bytes) -> tuple[bytes, dict[bytes, bytes], bytes]:
        self.send(raw)
        return self.answer()

    def ended(self) -> bool:
        return self._stream.read(1) == b""

    def close(self) -> None:
        self._stream.close()
        self.socket.close()


@pytest.fixture
def wire(node: Any) -> Iterator[Wire]:
    connection = Wire(node.url)
    yield connection
    connection.close()


@pytest.fixture
def schema_id(http: httpx.Client, subject: str) -> int:
    answer = http.post(f"/subjects/{subject}/versions", json={"schema": '"string"'})
    return int(answer.json()["id"])


def request(schema_id: int, *headers: str) -> bytes:
    lines = [f"GET /schemas/ids/{schema_id} HTTP/1.1", "Host: 127.0.0.1", *headers, "", ""]
    return "\r\n".join(lines).encode()


def hits(http: httpx.Client) -> float:
    lines = http.get("/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(HITS))


HITS = "penstock_registry_response_cache_hits_total "


def test_the_second_answer_is_the_first(wire: Wire, http: httpx.Client, schema_id: int) -> None:
    before = hits(http)
    first, second, third = (wire.ask(request(schema_id)) for _ in range(3))
    assert first == second == third
    assert first[0] == b"HTTP/1.1 200 OK"
    assert {b"server", b"content-type", b"content-length"} == set(first[1])
    assert b'"schema":"\\"string\\""' in first[2]
    assert hits(http) == before + 3


def test_each_answer_is_noted_as_a_use(
    wire: Wire, http: httpx.Client, schema_id: int, subject: str
) -> None:
    for _ in range(3):
        wire.ask(request(schema_id, "Penstock-Client: till-7; role=consumer"))
    (use,) = [
        one
        for one in http.get(f"/subjects/{subject}/usage").json()["uses"]
        if one["client"] == "till-7"
    ]
    assert use["count"] == 3


def test_the_type_of_the_answer_is_that_of_the_request(wire: Wire, schema_id: int) -> None:
    for _ in range(2):
        for media in (b"application/json", b"application/vnd.schemaregistry+json"):
            raw = request(schema_id, f"Accept: {media.decode()}")
            assert wire.ask(raw)[1][b"content-type"] == media


def test_a_changed_schema_is_served_again(
    wire: Wire, http: httpx.Client, schema_id: int, subject: str, record: Record
) -> None:
    raw = request(schema_id, "Host: localhost").replace(b" HTTP/1.1", b"?fetchMaxId=true HTTP/1.1")
    before = [wire.ask(raw)[2] for _ in range(2)]
    registered = http.post(
        f"/subjects/{subject}-other/versions",
        json={"schema": record("a:int", name="Fresh")},
    ).json()["id"]
    assert before[0] == before[1]
    assert f'"maxId":{registered}'.encode() in wire.ask(raw)[2]


def test_requests_one_after_another_without_waiting_are_all_answered(
    wire: Wire, schema_id: int
) -> None:
    expected = wire.ask(request(schema_id))
    wire.send(request(schema_id) * 5)
    assert [wire.answer() for _ in range(5)] == [expected] * 5
    assert wire.ask(request(schema_id)) == expected


def test_a_known_request_inside_of_another_is_not_taken_for_one(wire: Wire, schema_id: int) -> None:
    known = request(schema_id)
    wire.ask(known)
    wire.ask(known)
    body = len(known)
    lines = ["POST / HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    head = "\r\n".join([*lines, f"Content-Length: {body}", "", ""]).encode()
    wire.send(head)
    status, _, answer = wire.ask(known)
    assert (status, answer) == (b"HTTP/1.1 200 OK", b"{}")
    assert b'"schema"' in wire.ask(known)[2]


def test_a_request_in_pieces_is_put_together(wire: Wire, schema_id: int) -> None:
    raw = request(schema_id)
    expected = wire.ask(raw)
    wire.send(raw[:30])
    assert wire.ask(raw[30:]) == expected


def test_who_wants_the_connection_closed_gets_it_closed_each_time(
    node: Any, schema_id: int
) -> None:
    for _ in range(2):
        connection = Wire(node.url)
        status, headers, _ = connection.ask(request(schema_id, "Connection: close"))
        assert (status, headers[b"connection"]) == (b"HTTP/1.1 200 OK", b"close")
        assert connection.ended()
        connection.close()


def test_nothing_is_kept_of_what_is_not_there(wire: Wire, http: httpx.Client) -> None:
    for _ in range(2):
        status, _, body = wire.ask(request(2**30))
        assert status == b"HTTP/1.1 404 Not Found"
        assert b"40403" in body
