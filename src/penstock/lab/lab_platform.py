"""Where an experiment runs: a broker and a registry of its own, or those that the user names.

The own one is `penstock up` as a process, so that an experiment uses what users use. It is stopped
at the end, and its data is removed unless it has a folder.
"""

import ctypes
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.client.registry import Registry
from penstock.link.settings import client_settings

STOP_S: Final = 60.0
_ADMIN_S: Final = 30.0
_SET_PARENT_DEATH_SIGNAL: Final = 1


class LabError(Exception):
    """An experiment cannot be run."""


@dataclass(frozen=True, slots=True)
class LabPlatform:
    """Addresses of a broker and a registry, and how to make topics there."""

    bootstrap: str
    registry_url: str
    is_own: bool = False  # started for the run

    @property
    def brokers(self) -> int:
        """How many there are."""
        admin = AdminClient(client_settings(self.bootstrap))
        return len(admin.list_topics(timeout=_ADMIN_S).brokers)

    def registry(self, client: str = "penstock-lab", **options: Any) -> Registry:
        """A client of the registry with empty caches."""
        return Registry(self.registry_url, client=client, **options)

    def make_topic(
        self, name: str, partitions: int = 4, settings: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic, as often as there are brokers up to three; its name."""
        topic = NewTopic(name, partitions, min(3, self.brokers), config=dict(settings or {}))
        admin = AdminClient(client_settings(self.bootstrap))
        admin.create_topics([topic])[name].result(_ADMIN_S)
        return name


@contextmanager
def lab_platform(
    bootstrap: str | None, registry_url: str | None, *, folder: Path | None = None, brokers: int = 1
) -> Iterator[LabPlatform]:
    """The platform that both addresses name, or one that is started here."""
    if bootstrap is not None and registry_url is not None:
        yield LabPlatform(bootstrap, registry_url)
        return
    if bootstrap is not None or registry_url is not None:
        raise LabError("give both --bootstrap and --registry, or neither")
    data = ["--ephemeral"] if folder is None else ["--dir", str(folder)]
    many = [] if brokers == 1 else ["--brokers", str(brokers)]
    process = _start(["up", "--json", "--kafka-port", "0", "--http-port", "0", *data, *many])
    try:
        assert process.stdout is not None, "it is a pipe"
        line = process.stdout.readline()
        if not line:
            raise LabError("`penstock up` did not start; its last lines are above")
        ready = json.loads(line)
        yield LabPlatform(ready["kafka"], ready["http"], is_own=True)
    finally:
        process.terminate()
        process.wait(STOP_S)


def _start(arguments: Sequence[str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", *arguments],
        stdout=subprocess.PIPE,
        preexec_fn=_stop_with_parent if sys.platform == "linux" else None,
    )


def _stop_with_parent() -> None:
    """In the new process: SIGTERM when the process that started it is killed."""
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
