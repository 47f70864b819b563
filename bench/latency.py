"""Latency at a constant rate, one message per request: until acknowledged, or read.

Sender and receiver are compiled loops around librdkafka, each in its own thread: in Python they
would use more of the two cores than the server, and their pauses would be the highest percentile.
"""

import argparse
import ctypes as c
from collections.abc import Callable
from threading import Thread
from typing import Any

import numba
import numpy as np
from confluent_kafka import Consumer, TopicPartition

from bench.load import Client, Message

WARM_UP_SECONDS = 2.0
IDLE_SECONDS_MAX = 15
CLOCK_MONOTONIC = 1
NANOS = 1_000_000_000
COPY = 2  # RD_KAFKA_MSG_F_COPY
DELIVERY_REPORTS = 1  # RD_KAFKA_EVENT_DR
PAUSE_US = 50  # no busy waiting: the server shares two cores with this load
TAKEN_MAX = 1000
IDLE_WAIT_MS = 100
BACKLOG_S_MAX = 0.1  # of messages, at the end or in the middle: the server did not keep up
PAYLOAD_AT = Message.payload.offset


def measure_latency(options: argparse.Namespace) -> dict[str, float]:
    """p50 and p99 in milliseconds, of the messages after the warm-up."""
    return _end_to_end(options) if options.end_to_end else _acknowledged(options)


def _acknowledged(options: argparse.Namespace) -> dict[str, float]:
    producer = _producer(options, events=DELIVERY_REPORTS)
    return _measured(options, producer, _acknowledgements(producer))


def _end_to_end(options: argparse.Namespace) -> dict[str, float]:
    return _measured(options, _producer(options), _reader(options))


def _producer(options: argparse.Namespace, *, events: int = 0) -> Client:
    settings = {
        "bootstrap.servers": options.bootstrap,
        "acks": options.acks,
        "linger.ms": "0",
        "batch.num.messages": "1",
        "queue.buffering.max.messages": "1000000",
        "enable.idempotence": "true" if options.idempotent else "false",
    }
    return Client(Client.PRODUCER, settings, events=events)


class Receiver:
    """Receives each message and stores its age."""

    def __init__(self, client: Client, queue: int, take: Callable[..., int]) -> None:
        self._client = client  # its handle must live as long
        self._queue = queue
        self._take = take
        self.taken = 0

    def read(self, waits_ns: "np.ndarray[Any, Any]") -> int:
        """Read until there is one for each message; their number."""
        batch = np.zeros(TAKEN_MAX, dtype=np.int64)
        scratch = np.zeros(2, dtype=np.int64)
        self.taken = self._take(
            self._queue,
            batch,
            batch.ctypes.data,
            scratch,
            scratch.ctypes.data,
            waits_ns,
            IDLE_SECONDS_MAX * 1000,
        )
        return self.taken


def _measured(
    options: argparse.Namespace, producer: Client, receiver: Receiver
) -> dict[str, float]:
    topic = producer.library.rd_kafka_topic_new(producer.handle, options.topic.encode(), None)
    waits_ns = np.zeros(options.count, dtype=np.int64)
    send = compile_send(producer.library)
    payload = np.zeros(max(options.size, 8) // 8, dtype=np.int64)
    clock = np.zeros(2, dtype=np.int64)
    # One of each kind first: compilation and connections are not measured.
    send(topic, options.partitions, options.partitions, 1000, payload, payload.ctypes.data, clock)
    assert receiver.read(waits_ns[: options.partitions]) == options.partitions
    reading = Thread(target=receiver.read, args=(waits_ns,))
    reading.start()
    send(
        topic, options.count, options.partitions, options.rate, payload, payload.ctypes.data, clock
    )
    reading.join()
    assert receiver.taken == options.count, f"only {receiver.taken} of {options.count} came"
    producer.library.rd_kafka_flush(producer.handle, 30_000)
    assert producer.library.rd_kafka_outq_len(producer.handle) == 0, "not all were acknowledged"
    measured = _percentiles(waits_ns[int(WARM_UP_SECONDS * options.rate) :] / 1e9)
    return {**measured, "kept_up": float(kept_up(waits_ns, measured["p50_ms"] / 1000))}


def kept_up(waits_ns: "np.ndarray[Any, Any]", median_s: float) -> bool:
    """Whether the server had no backlog.

    At a constant rate the age of a message is the time of the load that waits before it.
    """
    last_s = float(np.median(waits_ns[-max(waits_ns.size // 10, 1) :])) / NANOS
    return max(median_s, last_s) < BACKLOG_S_MAX


def _acknowledgements(producer: Client) -> Receiver:
    """The producer's delivery reports, up to the first failure."""
    library = producer.library
    queue = library.rd_kafka_queue_get_main(producer.handle)
    return Receiver(producer, queue, compile_reports(library))


def _reader(options: argparse.Namespace) -> Receiver:
    """A consumer of every partition, from its end."""
    client = Client(
        Client.CONSUMER,
        {
            "bootstrap.servers": options.bootstrap,
            "group.id": "bench-latency",
            "enable.auto.commit": "false",
        },
    )
    library = client.library
    chosen = library.rd_kafka_topic_partition_list_new(options.partitions)
    name = options.topic.encode()
    for partition, end in enumerate(_end_offsets(options)):
        library.rd_kafka_topic_partition_list_add(chosen, name, partition)
        library.rd_kafka_topic_partition_list_set_offset(chosen, name, partition, end)
    library.rd_kafka_poll_set_consumer(client.handle)
    queue = library.rd_kafka_queue_get_consumer(client.handle)
    library.rd_kafka_assign(client.handle, chosen)
    return Receiver(client, queue, compile_take(library))


def _end_offsets(options: argparse.Namespace) -> list[int]:
    consumer = Consumer({"bootstrap.servers": options.bootstrap, "group.id": "bench-latency"})
    ends = [
        consumer.get_watermark_offsets(TopicPartition(options.topic, partition))[1]
        for partition in range(options.partitions)
    ]
    consumer.close()
    return ends


def compile_send(library: c.CDLL) -> Callable[..., None]:
    """The sender's loop: all messages that are due, each with the time, then a short sleep."""
    produce = library.rd_kafka_produce
    clock_gettime, usleep = _clock_gettime(), _usleep()

    @numba.njit(nogil=True)
    def send(
        topic: int, count: int, partitions: int, rate: int, payload: Any, address: int, clock: Any
    ) -> None:
        clock_gettime(CLOCK_MONOTONIC, clock.ctypes.data)
        started_ns = clock[0] * NANOS + clock[1]
        sent = 0
        while sent < count:
            clock_gettime(CLOCK_MONOTONIC, clock.ctypes.data)
            now_ns = clock[0] * NANOS + clock[1]
            due = min((now_ns - started_ns) * rate // NANOS + 1, count)
            while sent < due:
                clock_gettime(CLOCK_MONOTONIC, clock.ctypes.data)
                payload[0] = clock[0] * NANOS + clock[1]
                if produce(topic, sent % partitions, COPY, address, payload.nbytes, 0, 0, 0) != 0:
                    break
                sent += 1
            usleep(PAUSE_US)

    function: Callable[..., None] = send
    return function


def compile_take(library: c.CDLL) -> Callable[..., int]:
    """The reader's loop: the age of each message when it is returned."""
    take, destroy = library.rd_kafka_consume_batch_queue, library.rd_kafka_message_destroy
    clock_gettime, memcpy = _clock_gettime(), _memcpy()

    @numba.njit(nogil=True)
    def read(
        queue: int,
        batch: Any,
        address: int,
        scratch: Any,
        scratch_address: int,
        waits_ns: Any,
        idle_ms_max: int,
    ) -> int:
        taken = 0
        idle_ms = 0
        while taken < waits_ns.size and idle_ms < idle_ms_max:
            # librdkafka waits for a full batch or the timeout: so read one, then what has arrived.
            size = take(queue, IDLE_WAIT_MS, address, 1)
            idle_ms = 0 if size > 0 else idle_ms + IDLE_WAIT_MS
            size += take(queue, 0, address + 8, batch.size - 1) if size > 0 else 0
            clock_gettime(CLOCK_MONOTONIC, scratch_address)
            now_ns = scratch[0] * NANOS + scratch[1]
            for index in range(size):
                memcpy(scratch_address, batch[index] + PAYLOAD_AT, 8)
                if scratch[0] != 0 and taken < waits_ns.size:
                    memcpy(scratch_address, scratch[0], 8)
                    waits_ns[taken] = now_ns - scratch[0]
                    taken += 1
                destroy(batch[index])
        return taken

    function: Callable[..., int] = read
    return function


def compile_reports(library: c.CDLL) -> Callable[..., int]:
    """The loop over delivery reports: the age of each message when it is acknowledged."""
    poll, messages_of = library.rd_kafka_queue_poll, library.rd_kafka_event_message_array
    destroy = library.rd_kafka_event_destroy
    clock_gettime, memcpy = _clock_gettime(), _memcpy()

    @numba.njit(nogil=True)
    def read(
        queue: int,
        batch: Any,
        address: int,
        scratch: Any,
        scratch_address: int,
        waits_ns: Any,
        idle_ms_max: int,
    ) -> int:
        taken = 0
        idle_ms = 0
        while taken < waits_ns.size and idle_ms < idle_ms_max:
            event = poll(queue, IDLE_WAIT_MS)
            if event == 0:
                idle_ms += IDLE_WAIT_MS
                continue
            idle_ms = 0
            clock_gettime(CLOCK_MONOTONIC, scratch_address)
            now_ns = scratch[0] * NANOS + scratch[1]
            size = messages_of(event, address, batch.size)
            while size > 0:
                for index in range(size):
                    memcpy(scratch_address, batch[index], 8)
                    if scratch[0] & 0xFFFFFFFF != 0:  # its error
                        return taken
                    memcpy(scratch_address, batch[index] + PAYLOAD_AT, 8)
                    memcpy(scratch_address, scratch[0], 8)
                    waits_ns[taken] = now_ns - scratch[0]
                    taken += 1
                size = messages_of(event, address, batch.size)
            destroy(event)
        return taken

    function: Callable[..., int] = read
    return function


def _clock_gettime() -> Any:
    function = c.CDLL(None).clock_gettime
    function.restype, function.argtypes = c.c_int, [c.c_int, c.c_void_p]
    return function


def _usleep() -> Any:
    function = c.CDLL(None).usleep
    function.restype, function.argtypes = c.c_int, [c.c_uint]
    return function


def _memcpy() -> Any:
    function = c.CDLL(None).memcpy
    function.restype, function.argtypes = c.c_void_p, [c.c_void_p, c.c_void_p, c.c_size_t]
    return function


def _percentiles(seconds: "np.ndarray[Any, Any]") -> dict[str, float]:
    p50, p99 = np.percentile(seconds, [50, 99]) * 1000
    return {"p50_ms": float(p50), "p99_ms": float(p99), "messages": float(len(seconds))}
