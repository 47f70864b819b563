"""Registries for tests: the pure store over a list, and real nodes as processes over a broker."""

import json
import select
import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, TypeAlias

import httpx
import pytest

from penstock.machine import JournalRecord
from penstock.model import Millis
from penstock.node.http_process import HttpOptions, command_line
from penstock.registry.store.apply import apply
from penstock.registry.store.codec import read_event, write_event
from penstock.registry.store.commands import Command
from penstock.registry.store.machine import decide
from penstock.registry.store.state import Store
from penstock.testing.platform import Platform

READY_S = 60


class Desk:
    """The store with a list for a log: everything goes through bytes and back."""

    def __init__(self) -> None:
        self.store = Store()
        self.log: list[JournalRecord] = []
        self.now = 1000

    def ask(self, command: Command) -> Any:
        """Decide, write, read, apply; the answer."""
        self.now += 1
        outcome = decide(self.store, command, Millis(self.now))
        for event in outcome.events:
            record = write_event(event)
            self.log.append(record)
            self.take(self.store, record)
        (reply,) = outcome.replies
        return reply.body

    def take(self, store: Store, record: JournalRecord) -> None:
        event = read_event(record.key, record.value, Millis(self.now))
        assert event is not None
        apply(store, event)

    def replayed(self, records: list[JournalRecord]) -> Store:
        """What a node knows that reads these records."""
        store = Store()
        for record in records:
            self.take(store, record)
        return store

    def compacted(self) -> list[JournalRecord]:
        """The log as a cleaner leaves it: the last record of each key, tombstones gone."""
        last = {record.key: index for index, record in enumerate(self.log)}
        return [
            record
            for index, record in enumerate(self.log)
            if last[record.key] == index and record.value is not None
        ]


@pytest.fixture(scope="session")
def desk_class() -> type[Desk]:
    return Desk


@pytest.fixture
def desk() -> Desk:
    return Desk()


class Node:
    """One HTTP process with a registry in it."""

    def __init__(self, options: HttpOptions) -> None:
        self.process = subprocess.Popen(
            command_line(options), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.url = ""

    def wait_ready(self) -> "Node":
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], READY_S)
        told = json.loads(self.process.stdout.readline()) if readable else {}
        assert "http" in told, told
        self.url = str(told["http"])
        return self

    def end(self, *, kill: bool = False) -> int:
        if self.process.poll() is None:
            self.process.kill() if kill else self.process.terminate()
        status = self.process.wait(20)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        return status


@pytest.fixture(scope="session")
def node_class() -> type[Node]:
    return Node


StartNode: TypeAlias = Callable[..., Node]


@pytest.fixture(scope="session")
def broker(penstock: Platform) -> Platform:
    """Whatever keeps the log in this run."""
    return penstock


@pytest.fixture(scope="session")
def start_node(broker: Platform) -> Iterator[StartNode]:
    """Starts a node on a topic; all are ended when the tests are."""
    nodes: list[Node] = []

    def start(topic: str, *, wait: bool = True) -> Node:
        node = Node(
            HttpOptions(
                broker.bootstrap, http_port=0, topic=topic, group=topic, log_level="WARNING"
            )
        )
        nodes.append(node)
        return node.wait_ready() if wait else node

    yield start
    for node in nodes:
        if node.process.returncode is None:
            node.end()


@pytest.fixture(scope="session")
def node(start_node: StartNode) -> Node:
    return start_node("_schemas-tests")


@pytest.fixture
def http(node: Node) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=node.url, timeout=30) as client:
        yield client


_names = count(1)


@pytest.fixture
def subject() -> str:
    """A name nobody used before."""
    return f"subject-{next(_names)}-value"


def record(*fields: str, name: str = "R", **more: Any) -> str:
    """An Avro record: `a:int`, or `b:int=0` with a default."""
    documents = []
    for field in fields:
        title, _, rest = field.partition(":")
        kind, has_default, default = rest.partition("=")
        document: dict[str, Any] = {
            "name": title,
            "type": json.loads(kind) if kind[:1] in '["{' else kind,
        }
        if has_default:
            document["default"] = json.loads(default)
        documents.append(document)
    return json.dumps({"type": "record", "name": name, "fields": documents, **more})


@pytest.fixture(name="record")
def record_fixture() -> Callable[..., str]:
    return record
