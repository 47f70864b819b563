"""A streaming query whose driver, executors and broker are killed: every row there, and once.

Rows come in groups, a file each, and a file is a micro-batch. While drivers die and come back with
another layout, a reader looks at the topic again and again: of a group it must see, in each
partition, nothing or all; and no group before all of the one before it.

PENSTOCK_FAULT_ROWS sets how many rows there are: a million is the full run.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from operator import contains, eq
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.columns.arrow_records import bytes_to_arrow
from penstock.columns.open_batches import open_batches
from penstock.errors import Refused
from penstock.link.blocking import BlockingCluster
from penstock.link.fetch_range import FetchSettings, fetch_range
from penstock.link.offsets import Isolation, end_offsets, partitions_of
from penstock.model import Offset, TopicPartition
from penstock.protocol.java_hash import java_hash
from penstock.spark.batch_transaction import PREFIX
from penstock.testing.embedded import EmbeddedBroker
from penstock.testing.embedded_cluster import EmbeddedCluster
from tests.support.apache_kafka import ApacheKafka, PeerUnavailableError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

DRIVER = Path(__file__).with_name("spark_sink_driver.py")
ROWS = int(os.environ.get("PENSTOCK_FAULT_ROWS", "60000"))
GROUPS = 8
PARTITIONS = 4
LINE_SECONDS_MAX = 400
TIMEOUT_MS = 300_000
COMMITTED = Isolation.READ_COMMITTED
TRANSACTIONS, OFFSETS = "__transaction_state", "__consumer_offsets"
POINTS = ("before the marker", "after the marker", "after the ending")
# A restart never has the layout of the run before it.
LAYOUTS = ({"shuffles": 2, "adaptive": True}, {"shuffles": 5, "adaptive": False})


class Driver:
    """The process, and what it tells. Its workers are gone when it is."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(DRIVER), json.dumps(arguments)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._lines: Queue[str | None] = Queue()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.strip())
        self._lines.put(None)

    def line(self) -> str | None:
        """The next thing it tells; None at its end."""
        try:
            return self._lines.get(timeout=LINE_SECONDS_MAX)
        except Empty:
            self.kill()
            raise AssertionError("the driver says nothing any more") from None

    def lines_until(self, wanted: Callable[[str], bool]) -> str | None:
        """The first line that is wanted; None if it ends without."""
        while (line := self.line()) is not None:
            if wanted(line):
                return line
        return None

    def executors(self) -> list[psutil.Process]:
        """The executors' processes, if they are not the driver's own."""
        family = psutil.Process(self.pid).children(recursive=True)
        return [one for one in family if "CoarseGrainedExecutorBackend" in " ".join(_command(one))]

    def kill(self) -> None:
        """The driver and all it has started, at once (kill -9)."""
        family: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            family = psutil.Process(self.pid).children(recursive=True)
        self._process.kill()
        for one in family:
            with suppress(psutil.NoSuchProcess):
                one.send_signal(signal.SIGKILL)
        self._process.wait()
        self._reading.join(LINE_SECONDS_MAX)
        assert self._process.stdout is not None
        self._process.stdout.close()


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


class Reader:
    """Looks at a topic as read_committed readers do, and notes how much of each group it sees."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._stop = threading.Event()
        self._next: dict[TopicPartition, Offset] = {}
        self._seen: Counter[tuple[int, int]] = Counter()  # by group and partition
        self.values: list[int] = []
        self.snapshots: list[dict[tuple[int, int], int]] = []
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Reader":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with BlockingCluster(self._bootstrap) as cluster:
            while not self._stop.is_set():
                try:
                    with suppress(OSError, Refused):  # the broker is being killed
                        self._look(cluster)
                except BaseException as failure:  # noqa: BLE001 - raised by the test
                    self.failure = failure
                    return
                time.sleep(0.1)

    def _look(self, cluster: BlockingCluster) -> None:
        places = cluster.run(partitions_of([self._topic]))
        ends = cluster.run(end_offsets(places, isolation=COMMITTED))
        for place, end in ends.items():
            start = self._next.get(place, Offset(0))
            if end > start:
                values = fetched(cluster, place, start, end)
                self._next[place] = end
                self.values += values
                self._seen.update((value // group_size(), place.partition) for value in values)
        if not self.snapshots or self.snapshots[-1] != self._seen:
            self.snapshots.append(dict(self._seen))

    def catch_up(self) -> None:
        """Read everything, now that no query writes."""
        self._stop.set()
        self._thread.join()
        with BlockingCluster(self._bootstrap) as cluster:
            self._look(cluster)


def fetched(
    cluster: BlockingCluster, place: TopicPartition, start: Offset, end: Offset
) -> list[int]:
    values: list[int] = []
    ranged = fetch_range(place, start, end, settings=FetchSettings(isolation=COMMITTED))
    for chunk in cluster.stream(ranged):
        columns = open_batches(chunk.records, aborted=chunk.aborted)
        assert columns.values is not None
        some: list[Any] = bytes_to_arrow(columns.values).to_pylist()
        values += map(int, some)
    return values


def group_size() -> int:
    return ROWS // GROUPS


def check(reader: Reader) -> None:
    """Every row is there once, and no read saw a part of a group in a partition."""
    reader.catch_up()
    assert reader.failure is None
    size = group_size() * GROUPS
    assert len(reader.values) == size
    assert sorted(reader.values) == list(range(size))
    whole = reader.snapshots[-1]
    for snapshot in reader.snapshots:
        halves = {part: seen for part, seen in snapshot.items() if seen != whole[part]}
        assert not halves
        begun = {group for group, _ in snapshot}
        ended = {part for part in whole if part[0] < max(begun, default=0)}
        assert ended <= snapshot.keys(), "a group was seen before all of the one before it"


class Scene:
    """A server, a topic and the files that are to be streamed into it."""

    def __init__(self, bootstrap: str, folder: Path, master: str = "local[2]") -> None:
        self.bootstrap = bootstrap
        self.topic = f"sink-{random.randrange(1 << 30)}"
        self.source: str | None = None  # a topic to be read instead of the files
        self._folder = folder
        self._master = master
        self._starts = 0
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(self.topic, PARTITIONS)])[self.topic].result(60)
        for name in ("input", "local"):
            (folder / name).mkdir()
        for group in range(GROUPS):
            numbers = range(group * group_size(), (group + 1) * group_size())
            keys = [f"key-{number % 997}" for number in numbers]
            values = [str(number) for number in numbers]
            path = folder / "input" / f"{group:04d}.parquet"
            pq.write_table(pa.table({"key": keys, "value": values}), path)
            os.utime(path, (1_700_000_000 + group, 1_700_000_000 + group))  # read in this order

    def fill_source(self) -> None:
        """Write the rows to a topic, which is to be streamed instead of the files."""
        self.source = f"source-of-{self.topic}"
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(self.source, PARTITIONS)])[self.source].result(60)
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 20})
        for number in range(group_size() * GROUPS):
            producer.produce(self.source, str(number), key=f"key-{number % 997}")
            producer.poll(0)
        assert producer.flush(60) == 0

    @property
    def sink_name(self) -> str:
        """The transactional id of the sink, and the group of its marker; once a batch began."""
        metadata = json.loads((self._folder / "checkpoint" / "metadata").read_text())
        return f"{PREFIX}{self.topic}.{metadata['id']}"

    def start(self, point: str | None = None, batch: int = -1) -> Driver:
        """A driver on the same checkpoint, with another layout than the one before."""
        layout = LAYOUTS[self._starts % len(LAYOUTS)]
        self._starts += 1
        return Driver(
            {
                "master": self._master,
                "bootstrap": self.bootstrap,
                "topic": self.topic,
                "input": str(self._folder / "input"),
                "checkpoint": str(self._folder / "checkpoint"),
                "folder": str(self._folder / "local"),
                "source": self.source,
                "offsets_max": group_size(),
                "point": point,
                "batch": batch,
                "timeout_ms": TIMEOUT_MS,
                **layout,
            }
        )

    def finish(self) -> None:
        """Let it run to the end."""
        driver = self.start()
        assert driver.lines_until(lambda line: line == "done") == "done"
        driver.kill()


@pytest.fixture(params=["penstock", "apache kafka"])
def server(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker | ApacheKafka]:
    if request.param == "penstock":
        with EmbeddedBroker() as broker:
            yield broker
        return
    try:
        kafka = ApacheKafka(heap="512m")
    except PeerUnavailableError as missing:
        pytest.skip(str(missing))
    with kafka:
        yield kafka


def test_the_driver_dies_at_every_point_of_a_batch(
    server: EmbeddedBroker | ApacheKafka, tmp_path: Path
) -> None:
    scene = Scene(server.bootstrap, tmp_path)
    with Reader(server.bootstrap, scene.topic) as reader:
        for batch, point in enumerate(POINTS, start=1):
            driver = scene.start(point, batch)
            try:
                assert driver.lines_until(lambda line: line.startswith("at ")) == f"at {point}"
            finally:
                driver.kill()
        scene.finish()
        check(reader)


def test_the_driver_dies_at_any_moment(tmp_path: Path) -> None:
    rng = random.Random()
    with EmbeddedBroker() as broker:
        scene = Scene(broker.bootstrap, tmp_path)
        with Reader(broker.bootstrap, scene.topic) as reader:
            for _ in range(3):
                driver = scene.start()
                batches = rng.randrange(1, 3)
                for _ in range(batches):
                    driver.lines_until(lambda line: line.startswith("batch") or line == "done")
                time.sleep(rng.random() * 1.5)
                driver.kill()
            scene.finish()
            check(reader)


def test_the_broker_dies_while_batches_are_written(tmp_path: Path) -> None:
    rng = random.Random()
    with EmbeddedBroker() as broker:
        scene = Scene(broker.bootstrap, tmp_path)
        with Reader(broker.bootstrap, scene.topic) as reader:
            driver = scene.start()
            for batch in (1, 3, 5):
                start = f"batch {batch}"
                assert driver.lines_until(partial(eq, start)) == start
                time.sleep(rng.random() * 0.8)
                broker.kill()
                time.sleep(0.5)
                broker.start()
            assert driver.lines_until(lambda line: line == "done") == "done"
            driver.kill()
            check(reader)


@pytest.mark.parametrize("victim", [TRANSACTIONS, OFFSETS, None], ids=str)
def test_brokers_of_a_cluster_die_while_batches_are_written(
    tmp_path: Path, victim: str | None
) -> None:
    """The coordinator of the sink's transactions, that of its marker, or the leader of its rows."""
    rng = random.Random()
    with EmbeddedCluster() as cluster:
        scene = Scene(cluster.bootstrap, tmp_path)
        with Reader(cluster.bootstrap, scene.topic) as reader:
            driver = scene.start()
            for batch in (1, 3, 5):
                start = f"batch {batch}"
                assert driver.lines_until(partial(eq, start)) == start
                killed = leader_of(cluster, scene, victim)
                time.sleep(rng.random() * 0.8)
                cluster.kill(killed)
                time.sleep(rng.random() * 3)  # batches continue meanwhile, or wait
                cluster.restart(killed)
                cluster.wait_in_sync(scene.topic)
            assert driver.lines_until(lambda line: line == "done") == "done"
            driver.kill()
            check(reader)


def test_brokers_of_a_cluster_die_while_a_topic_is_streamed_into_another(tmp_path: Path) -> None:
    rng = random.Random()
    with EmbeddedCluster() as cluster:
        scene = Scene(cluster.bootstrap, tmp_path)
        scene.fill_source()
        assert scene.source is not None
        with Reader(cluster.bootstrap, scene.topic) as reader:
            driver = scene.start()
            for batch in (1, 3, 5):
                start = f"batch {batch}"
                assert driver.lines_until(partial(eq, start)) == start
                killed = cluster.leader(scene.source, rng.randrange(PARTITIONS))
                time.sleep(rng.random() * 0.8)
                cluster.kill(killed)
                time.sleep(rng.random() * 3)
                cluster.restart(killed)
                cluster.wait_in_sync(scene.source)
            assert driver.lines_until(lambda line: line == "done") == "done"
            driver.kill()
            reader.catch_up()
            assert reader.failure is None
            assert sorted(reader.values) == list(range(group_size() * GROUPS))


def leader_of(cluster: EmbeddedCluster, scene: Scene, internal: str | None) -> int:
    """The broker that leads a partition of the topic, or that of the sink in an internal one."""
    if internal is None:
        return cluster.leader(scene.topic, random.randrange(PARTITIONS))
    with BlockingCluster(cluster.bootstrap) as connected:
        partitions = len(connected.run(partitions_of([internal])))
    return cluster.leader(internal, java_hash(scene.sink_name) % partitions)


def test_executors_die_while_batches_are_written(tmp_path: Path) -> None:
    rng = random.Random()
    with EmbeddedBroker() as broker:
        scene = Scene(broker.bootstrap, tmp_path, master="local-cluster[2,1,512]")
        with Reader(broker.bootstrap, scene.topic) as reader:
            driver = scene.start()
            killed = 0
            for batch in (1, 3, 5):
                driver.lines_until(partial(contains, (f"batch {batch}", "done")))
                time.sleep(rng.random())
                for executor in driver.executors()[:1]:
                    with suppress(psutil.NoSuchProcess):
                        executor.kill()
                        killed += 1
            ended = driver.lines_until(lambda line: line == "done")
            driver.kill()
            if ended is None:  # Spark gave the query up: it may be started again, as ever
                scene.finish()
            assert killed
            check(reader)
