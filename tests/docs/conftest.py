"""For tests of what is beside the package: its benches, examples and pages.

Runs a page of the docs: its commands in order, as a reader would, and compares what they say.

    ```sh                                run by bash, in one folder; must end with status 0
    ```sh status 1                       must end with this one
    ```sh needs Java                     the same; left out where there is no Java
    ```sh in a checkout                  left out: run by the page's own test
    ```sh in a terminal of its own       goes on until the page is done; waited for until it is up
    ```text                              what the block before must have said: these lines, in this
                                         order, others between them; … stands for anything

Blocks in other languages are for reading. The addresses that a page names are replaced by free
ones.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # `bench` and `examples` are not installed

KAFKA = "127.0.0.1:9092"
REGISTRY = "127.0.0.1:8081"
OWN_TERMINAL = "in a terminal of its own"
IN_CHECKOUT = "in a checkout"
NEEDS_JAVA = "needs Java"
UP = "Stop with Ctrl-C."
SECONDS_MAX = 400  # a command that runs Spark on a machine that is busy
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    note: str
    text: str


class Unlike(AssertionError):
    """A command did not do what the page says."""


def blocks_of(text: str) -> list[Block]:
    """All fenced blocks of a page, in order."""
    return [Block(language, note.strip(), inside) for language, note, inside in FENCE.findall(text)]


class Reader:
    """Somebody who does what a page says, in a folder, with terminals for what goes on."""

    def __init__(self, folder: Path, places: dict[str, str]) -> None:
        self._folder = folder
        self._places = places
        self._terminals: list[subprocess.Popen[str]] = []
        self.commands = 0

    def follow(self, text: str) -> None:
        """Every block of a page; Unlike at the first that is not as it says."""
        said: str | None = ""
        for block in blocks_of(text):
            if block.language == "text":
                if said is not None:
                    check_said(self._placed(block.text), said)
            elif block.note == NEEDS_JAVA and shutil.which("java") is None:
                said = None
            elif block.note == OWN_TERMINAL:
                said = self._start(block)
            elif block.language == "sh" and block.note != IN_CHECKOUT:
                said = self._run(block)

    def _run(self, block: Block) -> str:
        self.commands += 1
        is_status = block.note.startswith("status ")
        wanted = int(block.note.removeprefix("status ")) if is_status else 0
        with subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", self._placed(block.text)],
            cwd=self._folder,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # so that what it left behind ends with it
        ) as process:
            try:
                said, _ = process.communicate(timeout=SECONDS_MAX)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode != wanted:
            raise Unlike(f"status {process.returncode} of\n{block.text}\n{said}")
        return said

    def _start(self, block: Block) -> str:
        self.commands += 1
        ports = [self._places[one].rpartition(":")[2] for one in (KAFKA, REGISTRY)]
        here = f"penstock up --kafka-port {ports[0]} --http-port {ports[1]}"
        process = subprocess.Popen(
            ["bash", "-c", f"exec {block.text.strip().replace('penstock up', here)}"],
            cwd=self._folder,
            env=self._environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        self._terminals.append(process)
        assert process.stdout is not None
        said = ""
        while UP not in said:
            line = process.stdout.readline()
            if not line:
                raise Unlike(f"it ended:\n{block.text}\n{said}")
            said += line
        return said

    def close(self) -> None:
        """Ctrl-C in each terminal."""
        for process in self._terminals:
            process.send_signal(signal.SIGINT)
        for process in self._terminals:
            assert process.wait(60) == 0, "it did not stop in good order"
            assert process.stdout is not None
            process.stdout.close()

    def _placed(self, text: str) -> str:
        for named, real in self._places.items():
            text = text.replace(named, real)
        return text

    def _environment(self) -> dict[str, str]:
        kafka, registry = self._places[KAFKA], self._places[REGISTRY]
        return {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PENSTOCK_BOOTSTRAP": kafka,
            "PENSTOCK_REGISTRY": f"http://{registry}",
            "COLUMNS": "200",
        }


def check_said(wanted: str, said: str) -> None:
    """Every line that is wanted was said, in this order."""
    rest = iter(said.splitlines())
    for line in wanted.splitlines():
        pattern = _pattern(line)
        if not any(pattern.fullmatch(one.rstrip()) for one in rest):
            raise Unlike(f"the page says\n{line}\nand the command said\n{said}")


def _pattern(line: str) -> re.Pattern[str]:
    """Columns are as wide as their longest cell: any number of blanks will do."""
    parts = [re.escape(part) for part in line.rstrip().split("…")]
    return re.compile(re.sub(r"(\\ )+", r"\\s+", ".*".join(parts)))


Follow: TypeAlias = Callable[[str], int]


@pytest.fixture
def places() -> dict[str, str]:
    """The addresses that pages name, and the free ones that they are replaced by."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    real = [f"127.0.0.1:{probe.getsockname()[1]}" for probe in probes]
    for probe in probes:
        probe.close()
    return dict(zip((KAFKA, REGISTRY), real, strict=True))


@pytest.fixture
def follow(tmp_path: Path, places: dict[str, str]) -> Iterator[Follow]:
    """Follows a page; how many blocks of commands it had."""
    reader = Reader(tmp_path, places)

    def follow_page(text: str) -> int:
        reader.follow(text)
        return reader.commands

    yield follow_page
    reader.close()


@pytest.fixture(scope="session")
def unlike() -> type[Unlike]:
    return Unlike


@pytest.fixture(scope="session")
def read_blocks() -> Callable[[str], list[Block]]:
    """The fenced blocks of a page's text."""
    return blocks_of
