"""Latency at a steady rate, one message per request: until acknowledged, or read."""

import argparse
import multiprocessing as mp
import struct
import time
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition

WARM_UP_SECONDS = 2.0
IDLE_SECONDS_MAX = 15.0


def measure_latency(options: argparse.Namespace) -> dict[str, float]:
    """p50 and p99 in milliseconds, of the messages after the warm-up."""
    return _end_to_end(options) if options.end_to_end else _acknowledged(options)


def _acknowledged(options: argparse.Namespace) -> dict[str, float]:
    waits: list[float] = []

    def send(producer: Producer, partition: int) -> None:
        started = time.perf_counter()
        producer.produce(
            options.topic,
            bytes(options.size),
            partition=partition,
            on_delivery=lambda error, _: waits.append(
                float("inf") if error else time.perf_counter() - started
            ),
        )

    _pace(options, send)
    return _percentiles(np.array(waits[int(WARM_UP_SECONDS * options.rate) :]))


def _end_to_end(options: argparse.Namespace) -> dict[str, float]:
    ours, theirs = mp.get_context("spawn").Pipe()
    reader = mp.get_context("spawn").Process(target=_read, args=(options, theirs), daemon=True)
    reader.start()
    assert ours.recv() == "ready"
    filler = bytes(options.size - 8)

    def send(producer: Producer, partition: int) -> None:
        stamp = struct.pack("<q", time.monotonic_ns())
        producer.produce(options.topic, stamp + filler, partition=partition)

    _pace(options, send)
    waits = ours.recv()
    reader.join()
    return _percentiles(np.array(waits[int(WARM_UP_SECONDS * options.rate) :]))


def _read(options: argparse.Namespace, pipe: Connection) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": options.bootstrap,
            "group.id": "bench-latency",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 500,
        }
    )
    chosen = [TopicPartition(options.topic, p) for p in range(options.partitions)]
    for place in chosen:
        place.offset = consumer.get_watermark_offsets(place)[1]
    consumer.assign(chosen)
    consumer.poll(1.0)
    pipe.send("ready")
    waits: list[float] = []
    deadline = time.monotonic() + IDLE_SECONDS_MAX
    while len(waits) < options.count and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and not message.error():
            sent = struct.unpack_from("<q", message.value() or b"")[0]
            waits.append((time.monotonic_ns() - sent) / 1e9)
            deadline = time.monotonic() + IDLE_SECONDS_MAX
    pipe.send(waits)
    consumer.close()


def _pace(options: argparse.Namespace, send: Any) -> None:
    """Call `send` at the wanted rate, serving delivery reports in between."""
    producer = Producer(
        {
            "bootstrap.servers": options.bootstrap,
            "acks": options.acks,
            "linger.ms": 0,
            "batch.num.messages": 1,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    started = time.perf_counter()
    sent = 0
    while sent < options.count:
        due = min(int((time.perf_counter() - started) * options.rate) + 1, options.count)
        for number in range(sent, due):
            send(producer, number % options.partitions)
        sent = due
        # No spinning: both servers share two cores with this load.
        producer.poll(max(0.0, started + sent / options.rate - time.perf_counter()))
    assert producer.flush(60) == 0, "not everything was acknowledged in time"


def _percentiles(seconds: "np.ndarray[Any, Any]") -> dict[str, float]:
    p50, p99 = np.percentile(seconds, [50, 99]) * 1000
    return {"p50_ms": float(p50), "p99_ms": float(p99), "messages": float(len(seconds))}
