"""Jars of peers by their Maven coordinates, kept in the user's cache: fetched once per machine.

Nothing here is needed to run Penstock; tests and benches compare it with what these jars hold.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

_FETCH_SECONDS_MAX: Final = 600
_ALONE: Final = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)


class PeerUnavailableError(Exception):
    """A peer cannot be had here; the message says why."""


class Artifact(NamedTuple):
    """One jar, as Maven names it."""

    group: str
    name: str
    version: str


def fetch_jars(
    peer: str, folder_name: str, artifacts: Sequence[Artifact], *, with_dependencies: bool = True
) -> Path:
    """The folder with a peer's jars, and by default with their dependencies."""
    goal = ["dependency:copy-dependencies"]
    return _fetch(peer, folder_name, goal, _pom(artifacts, with_dependencies))


def fetch_archive(peer: str, folder_name: str, artifact: Artifact, classifier: str) -> Path:
    """A peer's whole distribution as a .tar.gz, without asking what it depends on."""
    named = f"{artifact.group}:{artifact.name}:{artifact.version}:tar.gz:{classifier}"
    goal = ["dependency:copy", f"-Dartifact={named}"]
    (archive,) = _fetch(peer, folder_name, goal, _pom((), with_dependencies=False)).glob("*.tar.gz")
    return archive


def _fetch(peer: str, folder_name: str, goal: Sequence[str], pom: str) -> Path:
    folder = cache_folder() / folder_name
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise PeerUnavailableError(f"{peer} needs `{program}`, which is not on the PATH")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder_name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test workers fetch once between them
        if not folder.exists():
            _run_maven(peer, folder, goal, pom)
    return folder


def cache_folder() -> Path:
    """Where what was fetched is kept."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "penstock"


def _run_maven(peer: str, folder: Path, goal: Sequence[str], pom: str) -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-maven-") as work:
        file = Path(work) / "pom.xml"
        file.write_text(pom)
        fresh = folder.with_name(folder.name + ".part")
        shutil.rmtree(fresh, ignore_errors=True)
        done = subprocess.run(
            [
                "mvn",
                "--quiet",
                "--batch-mode",
                "--file",
                str(file),
                *goal,
                f"-DoutputDirectory={fresh}",
            ],
            capture_output=True,
            text=True,
            timeout=_FETCH_SECONDS_MAX,
            check=False,
        )
        if done.returncode != 0:
            raise PeerUnavailableError(f"Maven could not fetch {peer}:\n{done.stdout[-2000:]}")
        fresh.rename(folder)


def _pom(artifacts: Sequence[Artifact], with_dependencies: bool) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{one.group}</groupId><artifactId>{one.name}</artifactId>"
        f"<version>{one.version}</version>{'' if with_dependencies else _ALONE}</dependency>"
        for one in artifacts
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion>"
        "<groupId>penstock</groupId><artifactId>peers</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>\n"
    )
