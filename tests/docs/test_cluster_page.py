"""The commands of docs/how-to/cluster.md that one machine can run."""

import re
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "cluster.md"
PORTS = range(20_000, 30_000, 3)


def three_free_ports() -> str:
    """The address with the first of three ports in a row."""
    for first in PORTS:
        with ExitStack() as probes:
            try:
                for port in range(first, first + 3):
                    probes.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return f"127.0.0.1:{first}"
    raise AssertionError("no three ports in a row are free")


@pytest.fixture
def addresses(addresses: dict[str, str]) -> dict[str, str]:
    return {**addresses, "127.0.0.1:9092": three_free_ports()}


def sections() -> dict[str, str]:
    """The parts of the page, by their titles."""
    _, *parts = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    return dict(part.split("\n", 1) for part in parts)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_cluster_starts_on_one_machine_and_shows_its_state(follow: Callable[[str], int]) -> None:
    parts = sections()
    text = parts["On one machine"] + parts["Restart brokers one after the other"]
    # The id, the controller, and how many topics there are so far differ.
    text = re.sub(
        r"^Cluster \S+, controller \d$", "Cluster …, controller …", text, flags=re.MULTILINE
    )
    text = re.sub(
        r"^(\d) +\S+:\d+ +live +(\w) .*$", r"\1 127.0.0.1:… live \2 …", text, flags=re.MULTILINE
    )
    text = re.sub(r"^\d+ partitions: ", "… partitions: ", text, flags=re.MULTILINE)
    assert text.count("live") == 3
    assert follow(text) == 3
