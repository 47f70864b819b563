"""Registries for tests: the machine over a list, and real nodes as processes over a broker."""

import json
import select
import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, TypeAlias

import httpx
import psutil
import pytest

from penstock.node.http_process import HttpOptions, command_line
from penstock.testing.platform import Platform
from tests.support.registry_scenario import RegistryScenario

READY_S = 60


@pytest.fixture
def scenario() -> RegistryScenario:
    return RegistryScenario()


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
        ready = json.loads(self.process.stdout.readline()) if readable else {}
        assert "http" in ready, ready
        self.url = str(ready["http"])
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


def connections_to(nodes: list[Node]) -> list[Any]:
    """What this process has not closed."""
    ports = {int(node.url.rpartition(":")[2]) for node in nodes if node.url}
    mine = psutil.Process().net_connections("tcp")
    return [each for each in mine if each.raddr and each.raddr.port in ports]


StartNode: TypeAlias = Callable[..., Node]


@pytest.fixture(scope="session")
def broker(penstock: Platform) -> Platform:
    """The brokers that have the log in this run."""
    return penstock


@pytest.fixture(scope="session")
def start_node(broker: Platform) -> Iterator[StartNode]:
    """Starts a node on a topic; all are stopped after the tests."""
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
    assert connections_to(nodes) == [], "tests left connections to a registry open"
    for node in nodes:
        if node.process.returncode is None:
            assert node.end() == 0


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
    """A new name."""
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
