"""For tests of the client: a broker and a registry as processes of their own, and a fake to count.

The real ones are shared by all tests of the run; each test has topics and subjects of its own.
"""

import json
import select
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, TypeAlias

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.client.registry import Registry
from penstock.node.http_process import HttpOptions, command_line
from penstock.testing.embedded import EmbeddedBroker

READY_S = 60
MakeTopic: TypeAlias = Callable[..., str]


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def bootstrap(broker: EmbeddedBroker) -> str:
    return broker.bootstrap


@pytest.fixture(scope="session")
def registry_url(bootstrap: str) -> Iterator[str]:
    options = HttpOptions(bootstrap, http_port=0, log_level="WARNING")
    process = subprocess.Popen(command_line(options), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        readable, _, _ = select.select([process.stdout], [], [], READY_S)
        assert readable, "the registry did not start"
        yield str(json.loads(process.stdout.readline())["http"])
    finally:
        process.terminate()
        process.wait(20)
        process.stdin.close()
        process.stdout.close()


@pytest.fixture
def registry(registry_url: str) -> Iterator[Registry]:
    with Registry(registry_url, client="tests") as registry:
        yield registry


_names = count(1)


@pytest.fixture
def topic() -> str:
    """A name nobody used before; the broker makes the topic when it is first written to."""
    return f"topic-{next(_names)}"


@pytest.fixture
def make_topic(bootstrap: str) -> MakeTopic:
    """Makes a topic with so many partitions."""

    def make(partitions: int = 1, **settings: str) -> str:
        name = f"topic-{next(_names)}"
        admin = AdminClient({"bootstrap.servers": bootstrap})
        wanted = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        admin.create_topics([wanted])[name].result(20)
        return name

    return make


class CountingRegistry:
    """A registry of fixed answers that counts who asks for what; it may be told to be ill."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.clients: set[str] = set()
        self.answers: dict[str, Any] = {}
        self.status = 200
        self.gate = threading.Event()  # answers wait for it
        self.gate.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            do_POST = do_GET

            def log_message(self, format: str, *args: object) -> None:
                """Silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, asked: BaseHTTPRequestHandler) -> None:
        asked.rfile.read(int(asked.headers.get("Content-Length") or 0))
        path = asked.path.partition("?")[0]
        self.asked[f"{asked.command} {path}"] += 1
        self.clients.add(asked.headers["Penstock-Client"])
        self.gate.wait(30)
        found = self.answers.get(path)
        status = self.status if found is not None else 404
        body = found if status == 200 else {"error_code": status, "message": "told to"}
        told = json.dumps(body).encode()
        asked.send_response(status)
        asked.send_header("Content-Length", str(len(told)))
        asked.end_headers()
        asked.wfile.write(told)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def counting() -> Iterator[CountingRegistry]:
    found = CountingRegistry()
    yield found
    found.stop()
