"""Folders of contracts, and the run's registry over its broker."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from penstock.client.registry_api import RegistryApi
from penstock.gate.folder import ContractFolder
from penstock.testing.platform import Platform

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
def make_folder(write: Write) -> Callable[[dict[str, str]], ContractFolder]:
    return lambda files: ContractFolder(write(files))


@pytest.fixture
def api(registry_url: str) -> Iterator[RegistryApi]:
    with RegistryApi(registry_url) as api:
        yield api


@pytest.fixture
def subject(penstock: Platform) -> str:
    """A new subject name."""
    return f"{penstock.name('orders')}-value"
