"""The virtual time, network and disk that simulated brokers run on behave as the real ones may."""

import asyncio
import inspect
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.log.files import replace_file, sync_folder
from tests.support.cluster_simulation.disk import PAGE_BYTES, Disk, Disks
from tests.support.cluster_simulation.event_loop import SimulatedLoop
from tests.support.cluster_simulation.network import Network
from tests.support.cluster_simulation.world import SimulationError, World


class Echo(asyncio.Protocol):
    """Sends back what it receives."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Collector(asyncio.Protocol):
    """Keeps what it receives, and how the connection ended."""

    def __init__(self) -> None:
        self.received = b""
        self.ended: list[Exception | None] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.append(exc)


class Pair:
    """A server and a client with a connection between them."""

    def __init__(self, seed: int = 0) -> None:
        self.world = World(seed)
        self.network = Network(self.world)
        self.server = SimulatedLoop(self.world, self.network, "server")
        self.client = SimulatedLoop(self.world, self.network, "client")
        self.server.start(self.server.create_server(Echo, "server", 9092))
        self.world.run_for(0.01)
        connecting = self.client.start(self.client.create_connection(Collector, "server", 9092))
        assert self.world.run_until(connecting.done, within_s=1)
        self.protocol: Collector = connecting.result()[1]

    def send(self, data: bytes) -> None:
        self.client.call_soon(self.protocol.transport.write, data)


def test_sleeping_takes_virtual_time_only() -> None:
    world = World(0)
    loop = SimulatedLoop(world, Network(world), "a")
    started_s = world.now_s
    sleeping = loop.start(asyncio.sleep(3600))

    assert world.run_until(sleeping.done, within_s=4000)
    assert 3600 <= world.now_s - started_s < 3601


def test_a_paused_process_runs_what_fell_due_after_it_resumes() -> None:
    world = World(0)
    loop = SimulatedLoop(world, Network(world), "a")
    sleeping = loop.start(asyncio.sleep(1))
    world.run_for(0.5)
    loop.pause()
    world.run_for(10)
    assert not sleeping.done()

    loop.resume()
    world.run_for(0.1)
    assert sleeping.done()


def test_a_killed_process_runs_nothing_more() -> None:
    world = World(0)
    loop = SimulatedLoop(world, Network(world), "a")
    sleeping = loop.start(asyncio.sleep(1))
    world.run_for(0.5)
    loop.kill()
    world.run_for(10)

    assert not sleeping.done()


def test_a_task_that_fails_unseen_fails_the_simulation() -> None:
    async def fail() -> None:
        raise ValueError("a bug")

    world = World(0)
    loop = SimulatedLoop(world, Network(world), "a")
    loop.start(fail())
    with pytest.raises(SimulationError, match="a bug"):
        world.run_for(1)


def test_a_process_that_spins_is_found() -> None:
    world = World(0, steps_max=1000)
    loop = SimulatedLoop(world, Network(world), "a")

    def again() -> None:
        loop.call_soon(again)

    loop.call_soon(again)
    with pytest.raises(SimulationError, match="1000 callbacks"):
        world.run_for(1)


def test_bytes_over_a_cut_link_arrive_in_order_once_it_is_healed() -> None:
    pair = Pair()
    pair.network.cut("client", "server")
    pair.send(b"one ")
    pair.send(b"two")
    pair.world.run_for(30)
    assert pair.protocol.received == b""

    pair.network.heal("client", "server")
    pair.world.run_for(1)
    assert pair.protocol.received == b"one two"


def test_a_link_may_be_cut_in_one_direction() -> None:
    pair = Pair()
    pair.network.cut("server", "client")
    pair.send(b"request")
    pair.world.run_for(1)
    assert pair.protocol.received == b""

    pair.network.heal_all()
    pair.world.run_for(1)
    assert pair.protocol.received == b"request"


def test_a_killed_process_resets_its_connections_and_a_host_without_power_does_not() -> None:
    pair = Pair()
    pair.server.kill()
    pair.network.kill_host("server", silently=False)
    pair.world.run_for(1)
    assert isinstance(pair.protocol.ended[0], ConnectionResetError)

    silent = Pair()
    silent.server.kill()
    silent.network.kill_host("server", silently=True)
    silent.send(b"request")
    silent.world.run_for(10)
    assert silent.protocol.ended == []
    assert silent.protocol.received == b""


def test_a_port_without_a_listener_refuses() -> None:
    pair = Pair()
    connecting = pair.client.start(pair.client.create_connection(Collector, "server", 1))
    pair.world.run_until(connecting.done, within_s=1)
    assert isinstance(connecting.exception(), ConnectionRefusedError)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "disk"


@pytest.fixture
def disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk(folder, random.Random(0))
    disks = Disks()
    disks.add(disk)
    with monkeypatch.context() as patch:
        disks.install(patch)
        yield disk


def write(path: Path, content: bytes, *, sync: bool) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.pwrite(descriptor, content, 0)
    if sync:
        os.fsync(descriptor)
    os.close(descriptor)


def contents_after_power_cuts(disk: Disk, path: Path, prepare: Any) -> set[bytes | None]:
    seen: set[bytes | None] = set()
    for _ in range(60):
        prepare()
        disk.lose_power()
        seen.add(path.read_bytes() if path.exists() else None)
    return seen


def test_synced_bytes_and_names_survive_a_power_cut(disk: Disk, folder: Path) -> None:
    def prepare() -> None:
        write(folder / "log", b"a" * 5000, sync=True)
        sync_folder(str(folder))

    assert contents_after_power_cuts(disk, folder / "log", prepare) == {b"a" * 5000}


def test_unsynced_pages_may_survive_vanish_or_read_as_zeros(disk: Disk, folder: Path) -> None:
    def prepare() -> None:
        (folder / "log").unlink(missing_ok=True)
        write(folder / "log", b"a" * PAGE_BYTES, sync=True)
        sync_folder(str(folder))
        write(folder / "log", b"a" * PAGE_BYTES + b"b" * 10, sync=False)

    seen = contents_after_power_cuts(disk, folder / "log", prepare)
    first = b"a" * PAGE_BYTES
    assert {first, first + b"b" * 10, first + b"\0" * 10} <= seen
    assert all(content is not None and content.startswith(first) for content in seen)


def test_a_rename_without_a_folder_sync_may_be_undone_and_never_loses_both(
    disk: Disk, folder: Path
) -> None:
    target = folder / "checkpoint"

    def prepare() -> None:
        replace_file(str(target), b"old", sync=True)
        sync_folder(str(folder))
        replace_file(str(target), b"new", sync=True)

    assert contents_after_power_cuts(disk, target, prepare) == {b"old", b"new"}


def test_pages_of_a_failed_sync_are_lost_although_the_next_sync_succeeds(
    disk: Disk, folder: Path
) -> None:
    write(folder / "log", b"", sync=True)
    sync_folder(str(folder))
    disk.fsync_failure_share = 1.0
    with pytest.raises(OSError, match="the disk failed"):
        write(folder / "log", b"acknowledged?", sync=True)
    disk.fsync_failure_share = 0.0
    descriptor = os.open(folder / "log", os.O_RDWR)
    os.fsync(descriptor)
    os.close(descriptor)
    disk.lose_power()

    assert b"acknowledged?" not in (folder / "log").read_bytes()


def test_a_full_disk_refuses_and_writes_nothing(disk: Disk, folder: Path) -> None:
    disk.free_bytes = 10
    with pytest.raises(OSError, match="no space"):
        write(folder / "log", b"a" * 11, sync=False)
    assert (folder / "log").read_bytes() == b""


def test_coroutines_of_a_killed_process_end_even_if_their_cleanup_waits() -> None:
    world = World(0)
    loop = SimulatedLoop(world, Network(world), "a")
    steps: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            steps.append("cleanup began")
            await asyncio.sleep(1)
            steps.append("cleanup ended")

    task = loop.start(work())
    world.run_for(1)
    loop.kill()
    loop.close_coroutines()

    assert steps == ["cleanup began"]
    assert inspect.getcoroutinestate(cast("Any", task.get_coro())) == inspect.CORO_CLOSED
