"""File systems with little space, in memory, so that a disk can be full for real. Needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.testing.embedded_cluster import EmbeddedCluster

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from penstock.node.broker_process import BrokerOptions
    from penstock.testing.embedded import EmbeddedBroker

BROKER_DISK_BYTES = 192 << 20
CHUNK_BYTES = 64 << 10
PAGE_BYTES = 4096
BALLAST = "ballast"


def cannot_mount() -> str | None:
    """Why there can be no small disk here, if that is so."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return "only root may mount a small file system"
    with tempfile.TemporaryDirectory() as folder:
        if _mount(folder, PAGE_BYTES).returncode != 0:
            return "this machine does not allow mounts"
        _unmount(folder)
    return None


def _mount(folder: str, size_bytes: int) -> subprocess.CompletedProcess[bytes]:
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", folder]
    return subprocess.run(command, capture_output=True, check=False)


def _unmount(folder: str) -> None:
    subprocess.run(["umount", "--lazy", folder], check=True)


class SmallDisk:
    """A mounted file system. What `fill` writes is beside what its user has."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        _mount(str(path), size_bytes).check_returncode()

    def fill(self, left_bytes: int = 0) -> None:
        """Leave so much space, rounded to pages."""
        with (self.path / BALLAST).open("ab", buffering=0) as ballast, suppress(OSError):
            while True:
                ballast.write(bytes(CHUNK_BYTES))
        size_bytes = (self.path / BALLAST).stat().st_size
        os.truncate(self.path / BALLAST, max(0, size_bytes - left_bytes))

    def free(self) -> None:
        """Give the space back."""
        (self.path / BALLAST).unlink(missing_ok=True)

    def unmount(self) -> None:
        """Remove it with all that is on it."""
        _unmount(str(self.path))


class SmallDiskCluster(EmbeddedCluster):
    """Three brokers, each on a disk of its own that can be filled."""

    def _make(
        self, shared: BrokerOptions, count: int, racks: Sequence[str]
    ) -> Iterable[EmbeddedBroker]:
        brokers = list(super()._make(shared, count, racks))
        self.disks = {
            number: SmallDisk(broker.folder, BROKER_DISK_BYTES)
            for number, broker in enumerate(brokers, 1)
        }
        return brokers

    def heal(self) -> None:
        for disk in self.disks.values():
            disk.free()
        super().heal()

    def stop(self) -> None:
        for broker in self.brokers.values():
            broker.halt(hand_over=False)
        for disk in self.disks.values():
            disk.unmount()
        super().stop()
