"""A base install works without the libraries of any extra, and names the one that is missing."""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.extras import EXTRAS, MissingExtraError, is_installed, require

ROOT = Path(__file__).parents[1]
SUITE = Path(__file__).parent / "support" / "base_install"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CHECKOUT = ("pyproject.toml", "constraints.txt", "README.md", "LICENSE")
BASE_MB_MAX = 400
NOT_OURS = ("pip", "setuptools", "pytest", "_pytest")  # in the environment, not installed by us


def run_suite(python: Path, folder: Path, environment: Mapping[str, str]) -> None:
    """The tests of a base install, with an interpreter that has nothing else."""
    shutil.copy(SUITE / "suite.py", folder / "test_base_install.py")
    (folder / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "test_base_install.py"],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(300)
def test_what_a_base_install_runs_imports_no_library_of_an_extra(tmp_path: Path) -> None:
    path = os.pathsep.join([str(SUITE), os.environ.get("PYTHONPATH", "")])
    run_suite(Path(sys.executable), tmp_path, {"PYTHONPATH": path})


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_base_install_is_small_and_works(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in CHECKOUT:
        shutil.copy(ROOT / name, checkout / name)
    shutil.copytree(ROOT / "src", checkout / "src", ignore=shutil.ignore_patterns("__pycache__"))
    base_python = Path(sys.base_prefix, "bin", "python3")
    subprocess.run([base_python, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--constraint", "constraints.txt"]
    probe = subprocess.run([*pip, "iniconfig"], cwd=checkout, capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("no package index can be reached")
    subprocess.run([*pip, ".", "pytest"], cwd=checkout, check=True, timeout=600)
    (packages,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    sizes = [
        path.stat().st_size
        for path in packages.rglob("*")
        if path.is_file() and not path.relative_to(packages).parts[0].startswith(NOT_OURS)
    ]
    assert sum(sizes) >> 20 <= BASE_MB_MAX
    run_suite(python, tmp_path, {})


def test_the_extras_of_the_metadata_are_those_that_errors_name() -> None:
    optional = PROJECT["optional-dependencies"]
    assert EXTRAS.keys() == optional.keys() - {"dev", "docs"}
    assert optional["arrow"][0].startswith("pyarrow")
    assert optional["protobuf"][0].startswith("grpcio-tools")
    assert not [one for one in PROJECT["dependencies"] if one.startswith(("pyarrow", "grpcio"))]


@pytest.mark.parametrize("name", EXTRAS)
def test_what_is_installed_is_not_reported_missing(name: str) -> None:
    require(name)
    assert is_installed(name)


def test_a_missing_extra_is_an_import_error_that_names_it() -> None:
    error = MissingExtraError("arrow", "pyarrow")
    assert isinstance(error, ImportError)
    assert (error.extra, error.name) == ("arrow", "pyarrow")
    assert str(error) == (
        "Events as Arrow columns need the extra 'arrow', which is not installed (there is no "
        "module pyarrow): install penstock[arrow]"
    )
