"""Folders of contracts, and a real registry over a real broker."""

import json
import select
import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from penstock.client.contracts.folder import FolderShelf
from penstock.client.contracts.registry_api import RegistryApi
from penstock.node.http_process import HttpOptions, command_line
from penstock.testing.embedded import EmbeddedBroker

READY_S = 60
Write: TypeAlias = Callable[..., Path]


def order(*fields: str, **more: Any) -> str:
    """An Avro record: `a:int`, or `b:int=0` with a default."""
    documents = []
    for field in fields:
        title, _, rest = field.partition(":")
        kind, has_default, default = rest.partition("=")
        document = {"name": title, "type": json.loads(kind) if kind[:1] in '["{' else kind}
        if has_default:
            document["default"] = json.loads(default)
        documents.append(document)
    return json.dumps({"type": "record", "name": "Order", "fields": documents, **more})


@pytest.fixture(name="order")
def order_fixture() -> Callable[..., str]:
    return order


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes files of a folder of contracts: write({"orders-value/v1.avsc": text})."""

    def write_files(files: dict[str, str], name: str = "contracts") -> Path:
        folder = tmp_path / name
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        return folder

    return write_files


@pytest.fixture
def shelve(write: Write) -> Callable[[dict[str, str]], FolderShelf]:
    return lambda files: FolderShelf(write(files))


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def registry_url(broker: EmbeddedBroker) -> Iterator[str]:
    """A registry in a process of its own."""
    options = HttpOptions(broker.bootstrap, http_port=0, log_level="WARNING")
    process = subprocess.Popen(
        command_line(options), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdin is not None
    readable, _, _ = select.select([process.stdout], [], [], READY_S)
    told = json.loads(process.stdout.readline()) if readable else {}
    try:
        yield str(told["http"])
    finally:
        process.terminate()
        process.wait(20)
        process.stdin.close()
        process.stdout.close()


@pytest.fixture
def api(registry_url: str) -> Iterator[RegistryApi]:
    with RegistryApi(registry_url) as api:
        yield api


_names = count(1)


@pytest.fixture
def subject() -> str:
    """A name nobody used before."""
    return f"orders-{next(_names)}-value"
