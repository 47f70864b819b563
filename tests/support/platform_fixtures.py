"""Fixtures for all tests: broker and registry of the run, jars, a registry that counts requests.

Each test has topics and subjects of its own. `reading` reads the same framed events one by one and
as a batch.
"""

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest

from penstock.client.registry import Registry
from penstock.schemas.model import ParsedSchema, SchemaText, SchemaType
from penstock.schemas.parse_cache import parse
from penstock.serde.batch_serializers import BatchDeserializer
from penstock.serde.contract import Contract
from penstock.serde.errors import DecodeError
from penstock.serde.frame import SchemaId, write_prefix
from penstock.serde.serializers import Deserializer
from penstock.testing.platform import Platform
from tests.support.apache_kafka import PeerUnavailableError, fetch_libraries

MakeTopic: TypeAlias = Callable[..., str]
WRITER_ID = SchemaId(1)
CLOSED_WITHIN_S = 10


@pytest.fixture(scope="session")
def kafka_libs() -> Path:
    """The folder with Apache Kafka's jars, or a skip that says why there are none."""
    try:
        return fetch_libraries()
    except PeerUnavailableError as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def bootstrap(penstock: Platform) -> str:
    return penstock.bootstrap


@pytest.fixture(scope="session")
def registry_url(penstock: Platform) -> str:
    return penstock.registry_url


@pytest.fixture
def registry(registry_url: str) -> Iterator[Registry]:
    with Registry(registry_url, client="tests") as registry:
        yield registry


@pytest.fixture
def topic(penstock: Platform) -> str:
    """An unused name; the broker creates the topic when it is first written to."""
    return penstock.name("topic")


@pytest.fixture
def make_topic(penstock: Platform) -> MakeTopic:
    """Makes a topic with so many partitions."""

    def make(partitions: int = 1, **settings: str) -> str:
        return penstock.make_topic(partitions=partitions, settings=settings)

    return make


class CountingServer(ThreadingHTTPServer):
    """Knows which of its connections are open."""

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self.connections: set[Any] = set()
        super().__init__(("127.0.0.1", 0), handler)

    def process_request(
        self, request: socket.socket | tuple[bytes, socket.socket], client: Any
    ) -> None:
        self.connections.add(request)
        super().process_request(request, client)

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        super().shutdown_request(request)
        self.connections.discard(request)


class CountingRegistry:
    """A registry of fixed responses that counts requests; it can be made to fail."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.clients: set[str] = set()
        self.answers: dict[str, Any] = {}
        self.status = 200
        self.gate = threading.Event()  # answers wait for it
        self.gate.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            do_POST = do_GET  # noqa: N815 - called by this name

            def log_message(self, _format: str, *_args: object) -> None:
                """Silent."""

        self._server = CountingServer(Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        request.rfile.read(int(request.headers.get("Content-Length") or 0))
        path = request.path.partition("?")[0]
        self.requests[f"{request.command} {path}"] += 1
        self.clients.add(request.headers["Penstock-Client"])
        self.gate.wait(30)
        found = self.answers.get(path)
        status = self.status if found is not None else 404
        body = (
            found if status == 200 else {"error_code": status, "message": "requested by the test"}
        )
        response_body = json.dumps(body).encode()
        request.send_response(status)
        request.send_header("Content-Length", str(len(response_body)))
        request.end_headers()
        request.wfile.write(response_body)

    def stop(self) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        until = time.monotonic() + CLOSED_WITHIN_S
        while self._server.connections and time.monotonic() < until:
            time.sleep(0.01)
        assert not self._server.connections, "the registry stopped and left connections open"


@pytest.fixture
def counting() -> Iterator[CountingRegistry]:
    found = CountingRegistry()
    yield found
    found.stop()


class StoredSchema:
    """Stands where a registry would: one writer's schema under an id, and nothing to ask for."""

    def __init__(self, writer: ParsedSchema) -> None:
        self._writer = writer

    def schema(self, key: Any) -> Any:
        assert key == WRITER_ID
        return SimpleNamespace(parsed=self._writer, rule_set=None)

    def latest(self, subject: str) -> Any:
        return SimpleNamespace(parsed=self._writer, rule_set=None)

    def parse(self, source: SchemaText) -> ParsedSchema:
        return parse(source)

    def register_reference(self, name: str, source: SchemaText) -> Any:
        raise AssertionError("no schema here refers to another")


class Readings:
    """What single reading and batch reading made of the same events."""

    def __init__(
        self,
        writer: SchemaText,
        reader: SchemaText,
        payloads: Sequence[bytes],
        message: str | None = None,
        indexes: Sequence[int] | None = None,
    ) -> None:
        source: Any = StoredSchema(parse(writer))
        framed = [write_prefix(WRITER_ID, indexes) + payload for payload in payloads]
        contract = Contract(reader.text, type=reader.type, message=message)
        one = Deserializer(source, "t", reader=contract, as_dicts=True)
        many = BatchDeserializer(source, "t", reader=contract)
        self.alone = [self._alone(one, content) for content in framed]
        self.batch, self.errors = many.deserialize_many(framed)
        reasons = {wrong.row: str(wrong.reason) for wrong in self.errors}
        self.reasons = [reasons.get(row) for row in range(len(framed))]

    def _alone(self, one: Deserializer, content: bytes) -> Any:
        try:
            return one.deserialize(content)
        except DecodeError as refused:
            return refused

    @property
    def reasons_alone(self) -> list[str | None]:
        return [str(one.reason) if isinstance(one, DecodeError) else None for one in self.alone]

    def rows(self) -> list[Any]:
        """The rows of the batch; None for one that was refused."""
        rows = self.batch.to_pylist(maps_as_pydicts="strict")
        return [None if reason else row for row, reason in zip(rows, self.reasons, strict=True)]


class Reading:
    """What tests ask for by name."""

    readings = Readings

    @staticmethod
    def avro(schema: Any) -> SchemaText:
        return SchemaText(SchemaType.AVRO, json.dumps(schema))

    @staticmethod
    def json(schema: Any) -> SchemaText:
        return SchemaText(SchemaType.JSON, json.dumps(schema))

    @staticmethod
    def protobuf(text: str) -> SchemaText:
        return SchemaText(SchemaType.PROTOBUF, text)


@pytest.fixture(scope="session")
def reading() -> Reading:
    return Reading()
