"""For tests of the benches, the examples and the documentation.

Runs a page of the documentation: its commands in order, and compares their output with the page.

    ```sh                                run by bash, in one folder; must end with status 0
    ```sh status 1                       must end with this status
    ```sh needs Java                     skipped where there is no Java
    ```sh in a checkout                  skipped: run by the page's own test
    ```sh in a terminal of its own       runs to the end of the page; started when it is up
    ```text                              expected output of the block before: these lines, in this
                                         order, with others between; … stands for anything

Blocks in other languages are not run. The addresses of a page are replaced by free ones.
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


class PageError(AssertionError):
    """A command did not do what the page says."""


def blocks_of(text: str) -> list[Block]:
    """All fenced blocks of a page, in order."""
    return [Block(language, note.strip(), inside) for language, note, inside in FENCE.findall(text)]


class PageRunner:
    """Runs the commands of a page in a folder, with terminals for those that keep running."""

    def __init__(self, folder: Path, addresses: dict[str, str]) -> None:
        self._folder = folder
        self._addresses = addresses
        self._terminals: list[subprocess.Popen[str]] = []
        self.commands = 0

    def run(self, text: str) -> None:
        """Run every block of a page; raises PageError at the first difference."""
        output: str | None = ""
        for block in blocks_of(text):
            if block.language == "text":
                if output is not None:
                    check_output(self._with_addresses(block.text), output)
            elif block.note == NEEDS_JAVA and shutil.which("java") is None:
                output = None
            elif block.note == OWN_TERMINAL:
                output = self._start(block)
            elif block.language == "sh" and block.note != IN_CHECKOUT:
                output = self._run(block)

    def _run(self, block: Block) -> str:
        self.commands += 1
        is_status = block.note.startswith("status ")
        expected = int(block.note.removeprefix("status ")) if is_status else 0
        with subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", self._with_addresses(block.text)],
            cwd=self._folder,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # so that processes it leaves behind can be ended
        ) as process:
            try:
                output, _ = process.communicate(timeout=SECONDS_MAX)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode != expected:
            raise PageError(f"status {process.returncode} of\n{block.text}\n{output}")
        return output

    def _start(self, block: Block) -> str:
        self.commands += 1
        ports = [self._addresses[one].rpartition(":")[2] for one in (KAFKA, REGISTRY)]
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
        output = ""
        while UP not in output:
            line = process.stdout.readline()
            if not line:
                raise PageError(f"it ended:\n{block.text}\n{output}")
            output += line
        return output

    def close(self) -> None:
        """Ctrl-C in each terminal."""
        for process in self._terminals:
            process.send_signal(signal.SIGINT)
        for process in self._terminals:
            assert process.wait(60) == 0, "it did not stop cleanly"
            assert process.stdout is not None
            process.stdout.close()

    def _with_addresses(self, text: str) -> str:
        for named, real in self._addresses.items():
            text = text.replace(named, real)
        return text

    def _environment(self) -> dict[str, str]:
        kafka, registry = self._addresses[KAFKA], self._addresses[REGISTRY]
        return {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PENSTOCK_BOOTSTRAP": kafka,
            "PENSTOCK_REGISTRY": f"http://{registry}",
            "COLUMNS": "200",
        }


def check_output(expected: str, output: str) -> None:
    """All expected lines were printed, in this order."""
    rest = iter(output.splitlines())
    for line in expected.splitlines():
        pattern = _pattern(line)
        if not any(pattern.fullmatch(one.rstrip()) for one in rest):
            raise PageError(f"the page has\n{line}\nand the command printed\n{output}")


def _pattern(line: str) -> re.Pattern[str]:
    """Any number of blanks matches: columns are as wide as their longest cell."""
    parts = [re.escape(part) for part in line.rstrip().split("…")]
    return re.compile(re.sub(r"(\\ )+", r"\\s+", ".*".join(parts)))


Follow: TypeAlias = Callable[[str], int]


@pytest.fixture
def addresses() -> dict[str, str]:
    """The addresses in pages, and the free ones that replace them."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    real = [f"127.0.0.1:{probe.getsockname()[1]}" for probe in probes]
    for probe in probes:
        probe.close()
    return dict(zip((KAFKA, REGISTRY), real, strict=True))


@pytest.fixture
def follow(tmp_path: Path, addresses: dict[str, str]) -> Iterator[Follow]:
    """Run a page; returns how many blocks of commands it has."""
    runner = PageRunner(tmp_path, addresses)

    def follow_page(text: str) -> int:
        runner.run(text)
        return runner.commands

    yield follow_page
    runner.close()


@pytest.fixture(scope="session")
def page_error() -> type[PageError]:
    return PageError


@pytest.fixture(scope="session")
def read_blocks() -> Callable[[str], list[Block]]:
    """The fenced blocks of a page's text."""
    return blocks_of
