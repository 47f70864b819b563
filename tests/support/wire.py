"""A raw connection to a broker: any request in any version, well formed or not.

For tests that ask what a client would never ask. Blocking; one connection; answers come in the
order of the requests.
"""

from __future__ import annotations

import socket
import time
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from penstock.model import Millis
from penstock.protocol.framing import response_has_tags, write_request_header
from penstock.protocol.records import KeyValue, Record, build_batch
from tests.support.kio_messages import encode, fill_request, read_response

if TYPE_CHECKING:
    from types import TracebackType

SIZE: Final = Struct(">i")


class Wire:
    """A raw connection: requests by key and version, responses as kio reads them."""

    def __init__(self, port: int, *, host: str = "127.0.0.1", timeout_s: float = 20.0) -> None:
        self.socket = socket.create_connection((host, port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pending: list[tuple[int, int]] = []

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(
        self,
        api_key: int,
        version: int,
        *,
        client_id: str | None = "wire",
        has_response: bool = True,
        **fields: Any,
    ) -> None:
        self.socket.sendall(
            frame(len(self._pending), api_key, version, client_id=client_id, **fields)
        )
        if has_response:
            self._pending.append((api_key, version))

    def call(self, api_key: int, version: int, **fields: Any) -> Any:
        self.send(api_key, version, **fields)
        return self.receive()

    def receive(self) -> Any:
        """The next response; it must be to the oldest request without one."""
        body = self.receive_frame()
        api_key, version = self._pending.pop(0)
        start = 4 + response_has_tags(api_key, version)
        return read_response(api_key, version, body[start:])

    def receive_frame(self) -> bytes:
        (size,) = SIZE.unpack(self._take(4))
        return self._take(size)

    def send_frame(self, content: bytes) -> None:
        """Any bytes, framed."""
        self.socket.sendall(SIZE.pack(len(content)) + content)

    def is_closed(self) -> bool:
        """Whether the broker has ended the connection; waits for it."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _take(self, size: int) -> bytes:
        taken = bytearray()
        while len(taken) < size:
            chunk = self.socket.recv(size - len(taken))
            if not chunk:
                raise ConnectionError("the broker closed the connection")
            taken += chunk
        return bytes(taken)

    def produce(
        self,
        topic: str,
        records: bytes | bytearray | None,
        *,
        partition: int = 0,
        version: int = 9,
        acks: int = -1,
        transactional_id: str | None = None,
    ) -> Any:
        """Send one batch; what became of it, or None without acks."""
        self.send(
            0,
            version,
            has_response=acks != 0,
            transactional_id=transactional_id,
            acks=acks,
            timeout=5000,
            topic_data=[
                {
                    "name": topic,
                    "partition_data": [
                        {
                            "index": partition,
                            "records": None if records is None else bytes(records),
                        }
                    ],
                }
            ],
        )
        if acks == 0:
            return None
        return self.receive().responses[0].partition_responses[0]

    def fetch(self, topic: str, offset: int, *, version: int = 12, **fields: Any) -> Any:
        """Fetch from partition 0, outside a session; the partition's answer."""
        asked = {
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "isolation_level": 0,
            "session_epoch": -1,
            "partition_max_bytes": 1 << 20,
            **fields,
        }
        per_partition = {
            name: asked.pop(name)
            for name in ("partition_max_bytes", "current_leader_epoch", "last_fetched_epoch")
            if name in asked
        }
        response = self.call(
            1,
            version,
            topics=[
                {
                    "topic": topic,
                    "partitions": [{"partition": 0, "fetch_offset": offset, **per_partition}],
                }
            ],
            **asked,
        )
        return response.responses[0].partitions[0]


def frame(
    correlation_id: int,
    api_key: int,
    version: int,
    *,
    client_id: str | None = "wire",
    **fields: Any,
) -> bytes:
    """A whole request frame."""
    body = encode(fill_request(api_key, version, **fields))
    header = write_request_header(
        api_key=api_key, api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    return SIZE.pack(len(header) + len(body)) + header + body


def batch(*records: Record | KeyValue, **fields: Any) -> bytearray:
    """A batch of records stamped with the present, unless the fields say otherwise."""
    return build_batch(records or [(b"k", b"v")], **{"timestamp": _clock(), **fields})


def _clock() -> Millis:
    return Millis(int(time.time() * 1000))
