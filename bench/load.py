"""The load of both servers: librdkafka without a Python object per message.

The shared library of confluent-kafka's wheel is called directly: one call passes thousands of
prepared messages, and a compiled loop reads them, so that the server is the limit. Each load is its
own process, `python -m bench.load produce|consume|latency …`, and prints one line of JSON.
"""

import argparse
import ctypes as c
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import numba
import numpy as np

HAND_OVER: Final = 10_000  # messages per call
IDLE_SECONDS_MAX: Final = 20


class Message(c.Structure):
    """rd_kafka_message_t, in the layout of librdkafka's public header."""

    _fields_ = (
        ("error", c.c_int),
        ("topic", c.c_void_p),
        ("partition", c.c_int32),
        ("payload", c.c_void_p),
        ("size", c.c_size_t),
        ("key", c.c_void_p),
        ("key_size", c.c_size_t),
        ("offset", c.c_int64),
        ("opaque", c.c_void_p),
    )


def load_library() -> c.CDLL:
    """librdkafka from the wheel of confluent-kafka."""
    package = Path(confluent_kafka.__file__).parent
    libraries = sorted((package.parent / "confluent_kafka.libs").glob("librdkafka*"))
    library = c.CDLL(str(libraries[0]))
    pointer, text, size = c.c_void_p, c.c_char_p, c.c_size_t
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "rd_kafka_conf_new": (pointer, []),
        "rd_kafka_conf_set": (c.c_int, [pointer, text, text, text, size]),
        "rd_kafka_conf_set_dr_msg_cb": (None, [pointer, pointer]),
        "rd_kafka_conf_set_events": (None, [pointer, c.c_int]),
        "rd_kafka_new": (pointer, [c.c_int, pointer, text, size]),
        "rd_kafka_topic_new": (pointer, [pointer, text, pointer]),
        "rd_kafka_produce_batch": (
            c.c_int,
            [pointer, c.c_int32, c.c_int, c.POINTER(Message), c.c_int],
        ),
        "rd_kafka_produce": (
            c.c_int,
            [pointer, c.c_int32, c.c_int, pointer, size, pointer, size, pointer],
        ),
        "rd_kafka_poll": (c.c_int, [pointer, c.c_int]),
        "rd_kafka_flush": (c.c_int, [pointer, c.c_int]),
        "rd_kafka_outq_len": (c.c_int, [pointer]),
        "rd_kafka_destroy": (None, [pointer]),
        "rd_kafka_topic_partition_list_new": (pointer, [c.c_int]),
        "rd_kafka_topic_partition_list_add": (pointer, [pointer, text, c.c_int32]),
        "rd_kafka_topic_partition_list_set_offset": (
            c.c_int,
            [pointer, text, c.c_int32, c.c_int64],
        ),
        "rd_kafka_assign": (c.c_int, [pointer, pointer]),
        "rd_kafka_poll_set_consumer": (c.c_int, [pointer]),
        "rd_kafka_queue_get_consumer": (pointer, [pointer]),
        "rd_kafka_consume_batch_queue": (c.c_ssize_t, [pointer, c.c_int, pointer, size]),
        "rd_kafka_message_destroy": (None, [pointer]),
        "rd_kafka_queue_get_main": (pointer, [pointer]),
        "rd_kafka_queue_poll": (pointer, [pointer, c.c_int]),
        "rd_kafka_event_message_array": (size, [pointer, pointer, size]),
        "rd_kafka_event_destroy": (None, [pointer]),
        "rd_kafka_consumer_close": (c.c_int, [pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class Client:
    """A producer or consumer handle."""

    PRODUCER: Final = 0
    CONSUMER: Final = 1

    def __init__(
        self,
        kind: int,
        settings: dict[str, str],
        on_failure: Callable[..., None] | None = None,
        *,
        events: int = 0,  # those that arrive through a queue, not through callbacks
    ) -> None:
        self.library = load_library()
        error = c.create_string_buffer(512)
        conf = self.library.rd_kafka_conf_new()
        for key, value in settings.items():
            if self.library.rd_kafka_conf_set(conf, key.encode(), value.encode(), error, 512):
                raise ValueError(error.value.decode())
        self.library.rd_kafka_conf_set_events(conf, events)
        if on_failure is not None:
            signature = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(Message), c.c_void_p)
            self._callback = signature(on_failure)
            self.library.rd_kafka_conf_set_dr_msg_cb(conf, c.cast(self._callback, c.c_void_p))
        self.handle = self.library.rd_kafka_new(kind, conf, error, 512)
        if not self.handle:
            raise RuntimeError(error.value.decode())


def produce(options: argparse.Namespace) -> dict[str, float]:
    """Send `count` messages round robin over the partitions until all are acknowledged."""
    failures: list[int] = []
    client = Client(
        Client.PRODUCER,
        {
            "bootstrap.servers": options.bootstrap,
            "acks": options.acks,
            "batch.size": str(options.batch_bytes),
            "batch.num.messages": "1000000",
            "linger.ms": str(options.linger_ms),
            "queue.buffering.max.messages": "10000000",
            "queue.buffering.max.kbytes": "2000000",
            "message.max.bytes": "10000000",
            "delivery.report.only.error": "true",
            "enable.idempotence": "true" if options.idempotent else "false",
        },
        lambda _, message, __: failures.append(message.contents.error),
    )
    library = client.library
    topic = library.rd_kafka_topic_new(client.handle, options.topic.encode(), None)
    payload = c.create_string_buffer(np.random.default_rng(7).bytes(options.size), options.size)
    messages = (Message * HAND_OVER)()
    for message in messages:
        message.payload, message.size = c.addressof(payload), options.size
    # The first messages include connections and metadata: they are not measured.
    for partition in range(options.partitions):
        library.rd_kafka_produce_batch(topic, partition, 0, messages, 1)
    library.rd_kafka_flush(client.handle, 30_000)
    started, cpu_started = time.perf_counter(), time.process_time()
    sent = 0
    while sent < options.count:
        partition = (sent // HAND_OVER) % options.partitions
        size = min(HAND_OVER, options.count - sent)
        taken = library.rd_kafka_produce_batch(topic, partition, 0, messages, size)
        sent += taken
        library.rd_kafka_poll(client.handle, 0 if taken == size else 5)
        while library.rd_kafka_outq_len(client.handle) > 500_000:
            library.rd_kafka_poll(client.handle, 5)
    library.rd_kafka_flush(client.handle, 120_000)
    seconds = time.perf_counter() - started
    cpu_seconds = time.process_time() - cpu_started
    assert library.rd_kafka_outq_len(client.handle) == 0, "not everything was acknowledged in time"
    assert not failures, f"{len(failures)} messages failed with {failures[0]}"
    return _rates(options.count, options.size, seconds, cpu_seconds)


def consume(options: argparse.Namespace) -> dict[str, float]:
    """Read `count` messages from the start of every partition."""
    client = Client(
        Client.CONSUMER,
        {
            "bootstrap.servers": options.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": "false",
            "fetch.message.max.bytes": "4000000",
            "fetch.max.bytes": "52428800",
            "queued.min.messages": "1000000",
            "queued.max.messages.kbytes": "262144",
            "check.crcs": "false",
        },
    )
    library = client.library
    chosen = library.rd_kafka_topic_partition_list_new(options.partitions)
    name = options.topic.encode()
    for partition in range(options.partitions):
        library.rd_kafka_topic_partition_list_add(chosen, name, partition)
        library.rd_kafka_topic_partition_list_set_offset(chosen, name, partition, 0)
    library.rd_kafka_poll_set_consumer(client.handle)
    queue = library.rd_kafka_queue_get_consumer(client.handle)
    drain = _compile_drain(library)
    batch = np.zeros(HAND_OVER, dtype=np.int64)
    drain(queue, batch.ctypes.data, batch, 1, 0)  # compiled before the clock starts
    library.rd_kafka_assign(client.handle, chosen)
    # The first messages include connections and metadata: they are not measured.
    first = drain(queue, batch.ctypes.data, batch[:1], 1, IDLE_SECONDS_MAX * 1000)
    started, cpu_started = time.perf_counter(), time.process_time()
    rest = options.count - first
    taken = drain(queue, batch.ctypes.data, batch, rest, IDLE_SECONDS_MAX * 1000)
    seconds = time.perf_counter() - started
    cpu_seconds = time.process_time() - cpu_started
    assert taken >= rest, f"only {taken} of {rest} messages came"
    library.rd_kafka_consumer_close(client.handle)
    return _rates(taken, options.size, seconds, cpu_seconds)


def _compile_drain(library: c.CDLL) -> Callable[..., int]:
    take, destroy = library.rd_kafka_consume_batch_queue, library.rd_kafka_message_destroy
    idle_wait_ms = 1000

    @numba.njit
    def drain(queue: int, address: int, batch: Any, count: int, idle_ms_max: int) -> int:
        taken = 0
        idle_ms = 0
        while taken < count and idle_ms <= idle_ms_max:
            size = take(queue, idle_wait_ms if idle_ms_max else 0, address, batch.size)
            if size <= 0:
                idle_ms += idle_wait_ms
                continue
            idle_ms = 0
            for i in range(size):
                destroy(batch[i])
            taken += size
        return taken

    function: Callable[..., int] = drain
    return function


def latency(options: argparse.Namespace) -> dict[str, float]:
    """One message per request at a constant rate, acknowledged or end to end."""
    from bench.latency import measure_latency

    return measure_latency(options)


def _rates(count: int, size: int, seconds: float, cpu_seconds: float) -> dict[str, float]:
    return {
        "seconds": seconds,
        "busy_cores": cpu_seconds / seconds,
        "messages_per_second": count / seconds,
        "mb_per_second": count * size / seconds / 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("produce", "consume", "latency"))
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--batch-bytes", type=int, default=16_384)
    parser.add_argument("--linger-ms", type=float, default=5)
    parser.add_argument("--acks", default="all")
    parser.add_argument("--idempotent", action="store_true")
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--end-to-end", action="store_true")
    options = parser.parse_args()
    work = {"produce": produce, "consume": consume, "latency": latency}[options.what]
    print(json.dumps(work(options)))


if __name__ == "__main__":
    main()
