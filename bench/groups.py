"""Groups: offset commits, rebalances of 50 members, and loading a million offsets."""

import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from statistics import median
from struct import Struct
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.figures import Figure, report
from bench.host import Round, calm, timed
from bench.peers import Server, both_servers, cost_of, make_topic, penstock
from penstock.protocol.framing import write_request_header
from tests.support.apache_kafka import VERSION
from tests.support.kio_messages import encode, fill_request

CONNECTIONS = 8
COMMITS = 3000  # of each connection, one at a time
COMMIT_CPU = "commits: server CPU"
COMMIT_ROUNDS = 11  # of which the undisturbed ones are used
WARM_UP_ROUNDS = 6  # until then Java gets faster
MEMBERS, PARTITIONS, ROUNDS = 50, 200, 5
GROUPS, OFFSETS_EACH = 200, 5000
SIZE = Struct(">i")
CLASSIC = {"session.timeout.ms": 30_000, "partition.assignment.strategy": "cooperative-sticky"}
CONSUMER = {"group.protocol": "consumer"}
HEARTBEAT_S = 5  # of the consumer protocol, the same on both servers


def measure() -> Iterator[Figure]:
    """Run the same work on both servers; both run all the time."""
    with both_servers() as servers:
        for server in servers:
            make_topic(server.bootstrap, "t", partitions=PARTITIONS)
        rounds = commits_by_turns(servers)
        for name, unit, target in (("commits", "commits/s", ">= 1.0"), (COMMIT_CPU, "us", "")):
            middles = [median(each.measured[name] for each in counted) for counted in rounds]
            yield compared(name, middles, unit, target)
        for name, settings in (("classic", CLASSIC), ("consumer", CONSUMER)):
            steps = [rebalance(server.bootstrap, name, settings) for server in servers]
            joined, left = zip(*steps, strict=True)
            yield compared(
                f"{name}: stable after a member joins ({MEMBERS} members)", joined, "s", "<= 1.0"
            )
            yield compared(
                f"{name}: stable after a member leaves ({MEMBERS} members)", left, "s", "<= 1.0"
            )
    yield Figure("load a million offsets after a restart", load_million(), None, "s")


def compared(name: str, values: Sequence[float], unit: str, target: str) -> Figure:
    """Both results; without a peer, Penstock's alone."""
    ours, *peers = values
    return Figure(name, ours, peers[0] if peers else None, unit, target)


class Wire:
    """A raw connection."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, packed: bytes) -> bytes:
        """Send one request and return its response."""
        self.send(packed)
        return self.receive()

    def send(self, packed: bytes) -> None:
        """Send a request."""
        self.socket.sendall(packed)

    def receive(self) -> bytes:
        """The next response."""
        (size,) = SIZE.unpack(self._take(4))
        return self._take(size)

    def _take(self, size: int) -> bytes:
        taken = bytearray()
        while len(taken) < size:
            taken += self.socket.recv(size - len(taken))
        return bytes(taken)


def frame(api_key: int, version: int, **fields: Any) -> bytes:
    """A request with its size."""
    body = encode(fill_request(api_key, version, **fields))
    header = write_request_header(
        api_key=api_key, api_version=version, correlation_id=1, client_id="bench"
    )
    return SIZE.pack(len(header) + len(body)) + header + body


def commit_frame(group: str, topics: list[dict[str, Any]]) -> bytes:
    """A commit without a member, which a group without members accepts."""
    return frame(
        8, 9, group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics
    )


def rows(partitions: int) -> list[dict[str, Any]]:
    """An offset for each partition."""
    return [
        {
            "partition_index": index,
            "committed_offset": 42,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        for index in range(partitions)
    ]


def wait_for_coordinator(wire: Wire, group: str) -> None:
    """Wait until a commit is accepted."""
    packed = commit_frame(group, [{"name": "t", "partitions": rows(1)}])
    for _ in range(300):
        wire.ask(frame(10, 4, key_type=0, coordinator_keys=[group]))
        if wire.ask(packed)[-5:] == b"\0\0\0\0\0":  # error code and three empty tag sections
            return
        time.sleep(0.1)
    raise TimeoutError("no coordinator")


def commits_by_turns(servers: Sequence[Server]) -> list[list[Round]]:
    """The undisturbed rounds of each server; the servers take turns."""
    crews = [[Wire(server.bootstrap) for _ in range(CONNECTIONS)] for server in servers]
    for crew in crews:
        for number, wire in enumerate(crew):
            wait_for_coordinator(wire, f"commits-{number}")
    for crew in crews * WARM_UP_ROUNDS:
        commits_per_second(crew)
    rounds: list[list[Round]] = [[] for _ in servers]
    for _ in range(COMMIT_ROUNDS):
        for server, crew, done in zip(servers, crews, rounds, strict=True):
            done.append(timed(partial(commit_round, server, crew)))
            print(type(server).__name__, done[-1], file=sys.stderr)
    return [calm(done) for done in rounds]


def commit_round(server: Server, crew: Sequence[Wire]) -> dict[str, float]:
    """Commits per second, and the server CPU of one commit."""
    with cost_of(server.pid) as cost:
        rate = commits_per_second(crew)
    return {"commits": rate, COMMIT_CPU: cost.cpu_seconds / (CONNECTIONS * COMMITS) * 1e6}


def commits_per_second(crew: Sequence[Wire]) -> float:
    """Several clients, each of which commits one partition and waits for the response.

    One thread serves all of them: with one each, the switches between threads would be measured.
    """
    packed = {
        wire: commit_frame(f"commits-{number}", [{"name": "t", "partitions": rows(1)}])
        for number, wire in enumerate(crew)
    }
    left = dict.fromkeys(crew, COMMITS)
    with DefaultSelector() as answers:
        for wire in crew:
            answers.register(wire.socket, EVENT_READ, wire)
        started = time.perf_counter()
        for wire in crew:
            wire.send(packed[wire])
        while left:
            for key, _ in answers.select():
                wire = key.data
                wire.receive()
                left[wire] -= 1
                if left[wire]:
                    wire.send(packed[wire])
                else:
                    del left[wire]
    return CONNECTIONS * COMMITS / (time.perf_counter() - started)


class Member(threading.Thread):
    """A consumer, used by its own thread only; others read its assignment."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__()
        self._settings = settings
        self._leaving = threading.Event()
        self.owned = 0

    def run(self) -> None:
        """Poll until `leave` is called."""
        consumer = Consumer(self._settings)
        consumer.subscribe(["t"], on_assign=self._gain, on_revoke=self._lose, on_lost=self._lose)
        while not self._leaving.is_set():
            consumer.poll(0.05)
        consumer.close()

    def _gain(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned += len(partitions)  # both protocols are incremental here

    def _lose(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned -= len(partitions)

    def leave(self) -> None:
        """Request the end of the thread without waiting for it."""
        self._leaving.set()


class Crowd:
    """The members of one group."""

    def __init__(self, bootstrap: str, group: str, settings: dict[str, Any]) -> None:
        self._settings = {"bootstrap.servers": bootstrap, "group.id": group, **settings}
        self.members: list[Member] = []

    def join(self) -> None:
        """Add a member."""
        self.members.append(Member(self._settings))
        self.members[-1].start()

    def leave(self) -> None:
        """Remove the last member."""
        self.members.pop().leave()

    def wait_stable(self) -> float:
        """Seconds until the assignment is complete and even: each partition once."""
        started = time.perf_counter()
        while time.perf_counter() - started < 120:
            parts = [member.owned for member in self.members]
            if sum(parts) == PARTITIONS and max(parts) - min(parts) <= 1:
                return time.perf_counter() - started
            time.sleep(0.01)
        raise TimeoutError("the group is not stable")

    def stop(self) -> None:
        """Remove all members."""
        for member in self.members:
            member.leave()
        for member in self.members:
            member.join()


def rebalance(bootstrap: str, name: str, settings: dict[str, Any]) -> tuple[float, float]:
    """How long a stable group takes after one member joins, and after one leaves: medians.

    Members learn of it with their next heartbeat, so the result depends on where they are in their
    interval. Every step starts a second after the heartbeats of most members. The end of a leave
    shows their time, for which there is a first round; a classic group restarts them at every end.
    """
    crowd = Crowd(bootstrap, f"crowd-{name}", settings)
    for _ in range(MEMBERS - 1):
        crowd.join()
    crowd.wait_stable()
    last_heartbeat_at = time.perf_counter()
    joined, left = [], []
    for _ in range(1 + ROUNDS):
        time.sleep((last_heartbeat_at + 1 - time.perf_counter()) % HEARTBEAT_S)
        crowd.join()
        joined.append(crowd.wait_stable())
        if settings is CLASSIC:
            last_heartbeat_at = time.perf_counter()
        time.sleep((last_heartbeat_at + 1 - time.perf_counter()) % HEARTBEAT_S)
        crowd.leave()
        left.append(crowd.wait_stable())
        last_heartbeat_at = time.perf_counter()
    crowd.stop()
    print(name, "joins", joined, "leaves", left, file=sys.stderr)
    return median(joined[1:]), median(left[1:])


def load_million() -> float:
    """Seconds from the start of a broker with a million offsets until every group can commit."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-offsets-"))
    try:
        server = penstock(folder)
        with server:
            admin = AdminClient({"bootstrap.servers": server.bootstrap})
            names = [f"o{number}" for number in range(OFFSETS_EACH // 100)]
            for made in admin.create_topics(
                [NewTopic(name, 1, 1) for name in [*names, "t"]]
            ).values():
                made.result(30)
            wire = Wire(server.bootstrap)
            wait_for_coordinator(wire, "g0")
            topics = [{"name": name, "partitions": rows(100)} for name in names]
            for number in range(GROUPS):
                wire.ask(commit_frame(f"g{number}", topics))
            server.kill()
            started = time.perf_counter()
            server.start()
            wire = Wire(server.bootstrap)
            for number in range(GROUPS):
                wait_for_coordinator(wire, f"g{number}")
            return time.perf_counter() - started
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    report(measure(), __doc__, peer=f"Apache Kafka {VERSION}")
