"""The packages that users import from: their names load on first use, and load nothing else."""

import importlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent.parent / "src"
FACADES = ("penstock", "penstock.client", "penstock.spark", "penstock.testing")
PROMISED = {
    "AsyncConsumer", "AsyncProducer", "Consumer", "Contract", "Event", "Producer", "Registry",
    "ArgumentError", "ClientError", "DecodeError", "DeliveryError", "EncodeError",
    "RegistryRefusedError", "RegistryUnavailableError", "TransactionAbortedError",
    "UnsupportedRuleError", "WaitTimeoutError",
}  # fmt: skip


def run_python(program: str, path: Path = SOURCES) -> str:
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(path)!r})\n{program}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_import_penstock_loads_only_the_standard_library() -> None:
    loaded = run_python(
        "before = set(sys.modules); import penstock; print(*(set(sys.modules) - before))"
    ).split()
    ours = {name for name in loaded if name.startswith("penstock")}
    assert ours == {"penstock", "penstock.lazy", "penstock.version"}
    others = {name.partition(".")[0] for name in loaded} - {"penstock"}
    assert others <= sys.stdlib_module_names


def test_penstock_has_the_names_it_promises() -> None:
    assert set(importlib.import_module("penstock").__all__) == PROMISED


def test_using_one_name_does_not_load_arrow_or_numba() -> None:
    loaded = run_python("from penstock import Consumer, Producer; print(*sys.modules)").split()
    assert "confluent_kafka" in loaded
    assert not {"pyarrow", "numba", "pyspark", "fastapi"} & set(loaded)


@pytest.mark.parametrize("package", FACADES)
def test_each_public_name_can_be_imported(package: str) -> None:
    facade = importlib.import_module(package)
    for name in facade.__all__:
        assert getattr(facade, name) is not facade
        assert name in dir(facade)
        assert name in vars(facade), "the second access does not search again"


@pytest.mark.parametrize("package", FACADES)
def test_no_public_name_is_the_name_of_a_module(package: str) -> None:
    facade = importlib.import_module(package)
    folder = SOURCES.joinpath(*package.split("."))
    modules = {path.stem for path in folder.iterdir()}
    assert not modules & set(facade.__all__)


@pytest.mark.parametrize("package", FACADES)
def test_public_exceptions_end_in_error(package: str) -> None:
    facade = importlib.import_module(package)
    values = [getattr(facade, name) for name in facade.__all__]
    raised = [one for one in values if isinstance(one, type) and issubclass(one, Exception)]
    assert not [one.__name__ for one in raised if not one.__name__.endswith("Error")]


def test_a_misspelled_name_is_an_attribute_error_with_a_suggestion() -> None:
    program = "import penstock\npenstock.Prodcer"
    with pytest.raises(subprocess.CalledProcessError) as failure:
        run_python(program)
    assert "module 'penstock' has no attribute 'Prodcer'. Did you mean: 'Producer'?" in (
        failure.value.stderr
    )


def test_a_facade_works_from_a_zip_file(tmp_path: Path) -> None:
    archive = tmp_path / "penstock.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in (SOURCES / "penstock").rglob("*.py"):
            file.write(path, path.relative_to(SOURCES))
    assert run_python("import penstock; print(penstock.Contract.__module__)", archive).split() == [
        "penstock.serde.contract"
    ]


def test_star_import_gives_the_public_names() -> None:
    printed = run_python("from penstock.client import *\nprint(CommitMode.__module__)")
    assert printed.strip() == "penstock.client.commit_tracker"
