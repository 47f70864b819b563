"""For tests of the client: the run's broker and registry by their short names, a fake to count.

Each test has topics and subjects of its own.
"""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

import pytest

from penstock.client.registry import Registry
from penstock.testing.platform import Platform

MakeTopic: TypeAlias = Callable[..., str]


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
    """A name nobody used before; the broker makes the topic when it is first written to."""
    return penstock.name("topic")


@pytest.fixture
def make_topic(penstock: Platform) -> MakeTopic:
    """Makes a topic with so many partitions."""

    def make(partitions: int = 1, **settings: str) -> str:
        return penstock.make_topic(partitions=partitions, settings=settings)

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
