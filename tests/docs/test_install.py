"""The page on installing is run, in a copy of the checkout and an environment of its own."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
HOW_TO = ROOT / "docs" / "how-to"
ReadBlocks = Callable[[str], list[Any]]
CHECKOUT = ("pyproject.toml", "constraints.txt", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What pip needs of the repository. Dependencies are taken from the tests' own environment."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in CHECKOUT:
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    run("python3 -m venv .venv", folder)
    (packages,) = (folder / ".venv" / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def run(command: str, folder: Path) -> str:
    """A command by the interpreter that the tests' environment was made with, never in that."""
    own = Path(sys.executable).parent
    other_folders = [one for one in os.environ["PATH"].split(os.pathsep) if Path(one) != own]
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([f"{sys.base_prefix}/bin", *other_folders]),
        "PIP_REQUIRE_VIRTUALENV": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    environment.pop("VIRTUAL_ENV", None)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command], cwd=folder, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_command_on_installing_works(checkout: Path, read_blocks: ReadBlocks) -> None:
    blocks = [
        one for one in read_blocks((HOW_TO / "install.md").read_text()) if one.language == "sh"
    ]
    assert [one.note for one in blocks] == ["in a checkout"] * 2
    output = run(blocks[0].text, checkout)
    assert output.splitlines()[-1].startswith("penstock ")
    run(blocks[1].text, checkout)
    (wheel,) = (checkout / "dist").iterdir()
    assert wheel.match("dist/penstock-*.whl")
    where = ". .venv/bin/activate; python -c 'import penstock; print(penstock.__file__)'"
    assert run(where, checkout).strip().startswith(str(checkout / ".venv"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_gate_s_workflow_installs_the_wheel_that_the_page_makes(
    checkout: Path, read_blocks: ReadBlocks
) -> None:
    blocks = read_blocks((HOW_TO / "contract-gate.md").read_text())
    (text,) = (one.text for one in blocks if one.language == "yaml" and "checkout@" in one.text)
    (install,) = (
        step["run"]
        for step in yaml.safe_load(text)["jobs"]["gate"]["steps"]
        if "pip install" in step.get("run", "")
    )
    tools = checkout / "proposed" / "tools"
    wheel = f"pip wheel --quiet --no-deps --wheel-dir {tools} ."
    run(f". .venv/bin/activate; {wheel}; {install} && penstock --version", checkout)


def test_no_page_installs_from_an_index_that_has_no_penstock() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    from_an_index = ("pip install penstock", "pip install 'penstock[")
    assert not [
        f"{page.relative_to(ROOT)}: {line}"
        for page in pages
        for line in page.read_text().splitlines()
        if any(words in line for words in from_an_index)
    ]
