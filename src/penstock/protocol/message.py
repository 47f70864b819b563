"""What one API of the Kafka protocol is made of: typed messages, and a codec in both directions.

Messages are version-free: a field that a version lacks has its default. Reading raises Malformed
for bytes that cannot be the message, and nothing else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from penstock.errors import Refused
from penstock.protocol.api import Api
from penstock.protocol.varint import Buffer

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
Body: TypeAlias = bytes | list[Buffer]  # without its header; buffers follow one another


@dataclass(frozen=True, slots=True)
class Message(Generic[RequestT, ResponseT]):
    """One API. Every function takes the version; `position` is where the body starts.

    Strings and numbers of a message are copies; records may be views of the frame.
    """

    api: Api
    request: type[RequestT]
    response: type[ResponseT]
    read_request: Callable[[memoryview, int, int], RequestT]  # frame, position, version
    write_request: Callable[[RequestT, int], Sequence[Buffer]]
    read_response: Callable[[memoryview, int, int], ResponseT]
    write_response: Callable[[ResponseT, int, int], Body]  # response, version, throttle_ms
    refuse: Callable[[RequestT, Refused], ResponseT]  # the response that refuses all of a request
