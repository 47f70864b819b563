"""A request before its version is known: how to write it and how to read its answer in any.

The version is the connection's to choose: the newest that both sides know and the request allows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from penstock.protocol.messages import (
    BodyReader,
    encode,
    fill,
    known_versions,
    request_type,
    response_reader,
)
from penstock.protocol.primitives import Buffer

LAST_VERSION: Final = (1 << 15) - 1

Parts: TypeAlias = Sequence[Buffer]  # to be sent one after the other


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked. `least` and `last` bound the versions that mean what the asker wants."""

    api_key: int
    write: Callable[[int], Parts]  # the body in a version
    reader: Callable[[int], BodyReader]
    least: int = 0
    last: int = LAST_VERSION
    is_answered: bool = True  # a produce with acks=0 is not

    @property
    def versions(self) -> range:
        """Those we can speak and the asker can use."""
        known = known_versions(self.api_key)
        return range(max(known.start, self.least), min(known.stop, self.last + 1))


def plain(api_key: int, /, *, least: int = 0, last: int = LAST_VERSION, **fields: Any) -> Request:
    """A request from the fields of all its versions, as `messages.fill` takes them."""

    def write(version: int) -> Parts:
        return (encode(fill(request_type(api_key, version), **fields)),)

    def reader(version: int) -> BodyReader:
        return response_reader(api_key, version)

    return Request(int(api_key), write, reader, least, last)
