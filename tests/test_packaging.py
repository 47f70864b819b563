"""The Dockerfile and the unit of systemd: linted, and checked against the commands they run."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from penstock import __version__

ROOT: Final = Path(__file__).parent.parent
DOCKERFILE: Final = ROOT / "Dockerfile"
UNIT: Final = ROOT / "packaging" / "penstock.service"
PROGRAM: Final = "/opt/penstock/bin/penstock"
EXPOSURE_MAX: Final = 2.0  # by `systemd-analyze security`; a unit without hardening has 9.6


def tool(name: str) -> str:
    """A program on the path or beside Python; the test is skipped without it."""
    found = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip(f"{name} is not installed (`make setup tools` installs it)")
    return found


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    return output


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile with their arguments, continuation lines joined."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines if line]


def test_hadolint_accepts_the_dockerfile() -> None:
    assert run(tool("hadolint"), str(DOCKERFILE)) == ""


def test_the_image_runs_as_an_ordinary_user_with_a_volume_and_a_health_check() -> None:
    by_name = dict(instructions())
    assert sum(name == "FROM" for name, _ in instructions()) == 2
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", by_name["USER"])
    assert by_name["VOLUME"] in by_name["CMD"]
    assert "9092" in by_name["HEALTHCHECK"]
    assert by_name["ENTRYPOINT"] == '["penstock"]'


def test_the_image_is_built_from_files_that_exist_and_that_docker_may_read() -> None:
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    copied = [
        source
        for name, arguments in instructions()
        if name == "COPY" and not arguments.startswith("--from")
        for source in arguments.split()[:-1]
    ]
    assert copied
    for source in copied:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in allowed, source


def commands() -> list[list[str]]:
    """The commands of `penstock` in the Dockerfile and the unit, without the program."""
    text = DOCKERFILE.read_text() + UNIT.read_text()
    shell = re.findall(rf"{PROGRAM} (.+)$", text, flags=re.MULTILINE)
    found = [re.sub(r"\$\w+", "", line).split() for line in shell]
    default = dict(instructions())["CMD"]
    return [*found, re.findall(r'"([^"]+)"', default)]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_the_commands_exist(words: list[str]) -> None:
    run(sys.executable, "-m", "penstock", *words, "--help")


@pytest.fixture
def installed_unit(tmp_path: Path) -> Path:
    """The unit with a program that exists on this machine."""
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace(PROGRAM, "/bin/true"))
    return unit


def test_systemd_accepts_the_unit(installed_unit: Path) -> None:
    assert run(tool("systemd-analyze"), "verify", str(installed_unit)) == ""


def test_the_unit_is_hardened(installed_unit: Path) -> None:
    analyze = tool("systemd-analyze")
    report = run(analyze, "security", "--offline=true", "--no-pager", str(installed_unit))
    level = re.search(r"Overall exposure level for \S+: ([\d.]+)", report)
    assert level is not None
    assert float(level[1]) <= EXPOSURE_MAX


def test_changelog_and_release_notes_are_of_this_version() -> None:
    versions = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == __version__
    notes = ROOT / "docs" / "releases" / f"{__version__}.md"
    assert notes.read_text().startswith(f"# Release notes: {__version__}\n")
    assert f"releases/{__version__}.md" in (ROOT / "mkdocs.yml").read_text()
