"""The floor of a produce: a minimal uvloop server that acknowledges every batch and drops it.

It serves librdkafka's producer, so the same client under the same load measures it and a broker.
It reads of a request only what its response must repeat, and has no log and no disk: its
percentiles are those of the client and the machine. As a program, this module is the server.
"""

import argparse
import asyncio
import contextlib
import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import Final, cast

import uvloop

PRODUCE: Final = 0
METADATA: Final = 3
API_VERSIONS: Final = 18
# The lowest and the highest version of each API. A client of today sends version 2 batches only to
# a server with Fetch 4, which is not served.
VERSIONS: Final = {PRODUCE: (3, 7), 1: (4, 4), METADATA: (1, 1), API_VERSIONS: (0, 3)}
NODE: Final = 1
HEADER: Final = struct.Struct(">hhi")  # API, version, correlation id
BEFORE_TOPICS: Final = 2 + 2 + 4 + 4  # no transactional id, acks, timeout, number of topics


@contextlib.contextmanager
def bare_broker(topic: str, partitions: int) -> Iterator[str]:
    """Start the server; its address."""
    command = [sys.executable, "-m", "bench.kafka_floor", topic, str(partitions)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["bootstrap"]
        finally:
            process.terminate()


class Acknowledgements(asyncio.Protocol):
    """One connection of a producer that sends batches of one partition per request."""

    def __init__(self, metadata: bytes) -> None:
        self._metadata = metadata
        self._unread = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As asyncio calls it."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """As asyncio calls it."""
        assert self._transport is not None
        unread = self._unread + data if self._unread else data
        at = 0
        responses = []
        while len(unread) - at >= 4:
            end = at + 4 + int.from_bytes(unread[at : at + 4])
            if end > len(unread):
                break
            responses.append(self._response(unread[at + 4 : end]))
            at = end
        self._unread = unread[at:]
        if responses:
            self._transport.write(b"".join(responses))

    def _response(self, request: bytes) -> bytes:
        api, version, correlation = HEADER.unpack_from(request)
        if api == PRODUCE:
            body = _acknowledge(request)
        elif api == METADATA:
            body = self._metadata
        else:
            assert api == API_VERSIONS, f"API {api} is not served"
            body = _versions(flexible=version >= 3)
        return struct.pack(">ii", 4 + len(body), correlation) + body


def _acknowledge(request: bytes) -> bytes:
    """No error, at offset 0, for the one partition of the request."""
    at = HEADER.size + 2 + max(int.from_bytes(request[8:10], signed=True), 0)  # the client's id
    topic_at = at + BEFORE_TOPICS
    partition_at = topic_at + 2 + int.from_bytes(request[topic_at : topic_at + 2]) + 4
    topic = request[topic_at:partition_at]  # with the number of its partitions, 1
    (partition,) = struct.unpack_from(">i", request, partition_at)
    return b"\0\0\0\1" + topic + struct.pack(">ihqqqi", partition, 0, 0, -1, 0, 0)


def _versions(*, flexible: bool) -> bytes:
    tags = b"\0" if flexible else b""
    rows = b"".join(
        struct.pack(">hhh", api, low, high) + tags for api, (low, high) in VERSIONS.items()
    )
    count = bytes([len(VERSIONS) + 1]) if flexible else struct.pack(">i", len(VERSIONS))
    return struct.pack(">h", 0) + count + rows + (struct.pack(">i", 0) + tags if flexible else b"")


def _metadata(host: str, port: int, topic: str, partitions: int) -> bytes:
    """One broker that leads every partition of one topic, in version 1."""
    broker = struct.pack(">ii", 1, NODE) + _text(host) + struct.pack(">ih", port, -1)
    rows = b"".join(
        struct.pack(">hiiiiii", 0, number, NODE, 1, NODE, 1, NODE) for number in range(partitions)
    )
    topics = struct.pack(">iih", NODE, 1, 0) + _text(topic) + struct.pack(">bi", 0, partitions)
    return broker + topics + rows


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


async def serve(topic: str, partitions: int) -> None:
    """Serve until the process is ended; prints one JSON object when it listens."""
    metadata = b""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Acknowledgements(metadata), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    metadata = _metadata(host, port, topic, partitions)
    print(json.dumps({"bootstrap": f"{host}:{port}"}), flush=True)
    await server.serve_forever()


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("topic")
    parser.add_argument("partitions", type=int)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(options.topic, options.partitions))


if __name__ == "__main__":
    main()
