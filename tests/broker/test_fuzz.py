"""Frames of real clients and of every API, broken in every way, leave the broker serving.

Each frame is sent on a connection that may or may not survive it; what must survive is the broker:
it serves the next valid request, its log is whole, and no handler failed.
"""

from __future__ import annotations

import contextlib
import logging
import random
import socket
import struct
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest

from penstock.broker.handlers import API_TABLE
from penstock.protocol.api import request_schema
from penstock.protocol.batch import iterate_headers
from penstock.protocol.framing import write_request_header
from penstock.protocol.kio_schema import EntityType, shapes_of
from tests.support.kio_messages import encode, fill

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.broker.conftest import RunningBroker

FRAMES_PER_CONNECTION = 2
INTERESTING = (0, 1, 0x7F, 0x80, 0xFE, 0xFF)


def recorded_frames(broker: RunningBroker) -> list[bytes]:
    """What librdkafka sends to write, with and without transactions, and to read in a group."""
    frames: list[bytes] = []
    dispatcher = broker.server.dispatcher
    begin = dispatcher.begin

    def record(client: Any, frame: memoryview) -> Any:
        frames.append(bytes(frame))
        return begin(client, frame)

    broker.call(lambda: setattr(dispatcher, "begin", record))
    settings = {"bootstrap.servers": broker.bootstrap}
    for extra in ({"compression.type": "lz4"}, {"transactional.id": "x"}):
        producer: Any = confluent_kafka.Producer({**settings, **extra})
        if "transactional.id" in extra:
            producer.init_transactions(20)
            producer.begin_transaction()
        for number in range(50):
            producer.produce("t", b"%d" % number, b"key", headers=[("a", b"b")])
        assert producer.flush(20) == 0
        if "transactional.id" in extra:
            producer.commit_transaction(20)
    consumer: Any = confluent_kafka.Consumer(
        {**settings, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["t"])
    assert len(consumer.consume(100, 20)) == 100
    consumer.commit(asynchronous=False)
    consumer.close()
    broker.call(lambda: setattr(dispatcher, "begin", begin))
    assert len({frame[:2] for frame in frames}) > 12
    return frames


def made_frames() -> list[bytes]:
    """A request of every served API and version, with something in every field."""
    frames = []
    for row in API_TABLE.rows:
        for version in range(row.versions[0], row.versions[1] + 1):
            kind = request_schema(row.api, version)
            header = write_request_header(
                api_key=row.api, api_version=version, correlation_id=7, client_id="fuzz"
            )
            frames += [header + encode(fill(kind, **filled(kind, depth))) for depth in (0, 3)]
    return frames


def filled(kind: EntityType, depth: int) -> dict[str, Any]:
    """Plausible values: arrays of one, names that exist, small numbers."""
    values: dict[str, Any] = {}
    for shape in shapes_of(kind):
        if shape.structure is not None:
            if depth == 0:
                continue
            inner = filled(shape.structure, depth - 1)
            values[shape.name] = [inner] if shape.is_array else inner
        elif shape.primitive in SAMPLES:
            sample = SAMPLES[shape.primitive]
            values[shape.name] = [sample] if shape.is_array else sample
    return values


SAMPLES: dict[str | None, Any] = {
    "string": "t",
    "int32": 0,
    "int64": 0,
    "bytes": b"xyz",
    "timedelta_i32": 1,
    "timedelta_i64": 1,
}


def broken(frame: bytes, rng: random.Random) -> bytes:
    """One to four mutations."""
    changed = bytearray(frame)
    for _ in range(rng.randint(1, 4)):
        position = rng.randrange(4, len(changed)) if len(changed) > 4 else 0
        match rng.randrange(6):
            case 0:
                changed[position] = rng.choice(INTERESTING)
            case 1:
                changed[position] ^= 1 << rng.randrange(8)
            case 2:
                del changed[position:]
            case 3:
                changed[position:position] = rng.randbytes(rng.randint(1, 8))
            case 4:
                changed[position : position + 4] = struct.pack(
                    ">i", rng.choice((-1, 2**31 - 1, -(2**31), 65536, 1 << 24))
                )
            case _:
                del changed[position : position + rng.randint(1, 4)]
        if len(changed) < 8:
            changed += bytes(8 - len(changed))
    return bytes(changed)


def send_all(port: int, frames: list[bytes]) -> None:
    """On one connection, as long as it is open; responses are drained, not read."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as connected,
        contextlib.suppress(ConnectionError, TimeoutError),
    ):
        connected.sendall(b"".join(struct.pack(">i", len(one)) + one for one in frames))
        connected.shutdown(socket.SHUT_WR)
        connected.settimeout(0.02)  # a fetch or a join may wait for long
        while connected.recv(1 << 16):
            pass


def fuzz(broker: RunningBroker, corpus: list[bytes], count: int, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(count // FRAMES_PER_CONNECTION):
        frames = [broken(rng.choice(corpus), rng) for _ in range(FRAMES_PER_CONNECTION)]
        send_all(broker.port, frames)


def check_serving(broker: RunningBroker, make_batch: Callable[..., bytearray]) -> None:
    broker.create_topic("after")
    with broker.connect() as wire:
        assert wire.call(18, 3).error_code == 0
        assert wire.produce("after", make_batch()).error_code == 0
        records = wire.fetch("after", 0).records
        assert [header.base_offset for _, header in iterate_headers(records)] == [0]


def run_fuzz(
    broker: RunningBroker,
    make_batch: Callable[..., bytearray],
    caplog: pytest.LogCaptureFixture,
    *,
    count: int,
    seed: int,
) -> None:
    broker.create_topic("t", 2)
    corpus = made_frames() + recorded_frames(broker)
    assert len({frame[:4] for frame in corpus}) > 100
    with caplog.at_level(logging.ERROR):
        fuzz(broker, corpus, count, seed)
    bugs = [row.getMessage() for row in caplog.records if row.exc_info]
    assert bugs == []
    check_serving(broker, make_batch)


def test_two_thousand_broken_frames_leave_it_serving(
    broker: RunningBroker,
    make_batch: Callable[..., bytearray],
    caplog: pytest.LogCaptureFixture,
) -> None:
    run_fuzz(broker, make_batch, caplog, count=2000, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(2, 6))
def test_tens_of_thousands_of_broken_frames_leave_it_serving(
    broker: RunningBroker,
    make_batch: Callable[..., bytearray],
    caplog: pytest.LogCaptureFixture,
    seed: int,
) -> None:
    run_fuzz(broker, make_batch, caplog, count=10_000, seed=seed)
