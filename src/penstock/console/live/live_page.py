"""One open page: what it is subscribed to, and what waits to be sent to it.

A page that does not read loses records, oldest first, and is sent how many; of everything else it
gets only the latest. So a page costs a bounded amount of memory, however slow it is. At most five
messages of a kind are sent per second.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

RECORDS_MAX: Final = 500
BYTES_MAX: Final = 4 << 20
TURN_S: Final = 0.2
_encode = msgspec.json.Encoder().encode


class LivePage:
    """The messages for one page. Called on the event loop only."""

    def __init__(self) -> None:
        self.topics: frozenset[str] = frozenset()  # that it tails
        self.starting: frozenset[str] = frozenset()  # that it is about to tail
        self.has_overview: bool = False
        self.redrives: set[str] = set()  # ids
        self.is_ended: bool = False
        self._latest: dict[str, bytes] = {}  # by kind: only the last counts
        self._records: deque[bytes] = deque()
        self._bytes = 0
        self._dropped = 0
        self._rates: dict[str, float] = {}
        self._woken = asyncio.Event()

    def offer(self, kind: str, message: dict[str, Any]) -> None:
        """Send this next; it replaces one of its kind that was not sent yet."""
        self._latest[kind] = _encode(message)
        self._woken.set()

    def offer_records(
        self, topic: str, records: Sequence[bytes], dropped: int, rate: float
    ) -> None:
        """Records as JSON, and how many were left out before them."""
        self._rates[topic] = rate
        self._dropped += dropped
        for record in records:
            self._records.append(record)
            self._bytes += len(record)
        while len(self._records) > RECORDS_MAX or (
            self._bytes > BYTES_MAX and len(self._records) > 1
        ):
            self._bytes -= len(self._records.popleft())
            self._dropped += 1
        if records or dropped:
            self._woken.set()

    def forget_tail(self) -> None:
        """It tails nothing any more."""
        self.topics = frozenset()
        self._records.clear()
        self._rates.clear()
        self._bytes = self._dropped = 0

    def end(self) -> None:
        """Let `send_all` return."""
        self.is_ended = True
        self._woken.set()

    def take(self) -> list[bytes]:
        """The messages that are due."""
        messages = list(self._latest.values())
        self._latest.clear()
        if self._records or self._dropped:
            tail = {
                "type": "tail",
                "records": [msgspec.Raw(record) for record in self._records],
                "dropped": self._dropped,
                "rate": round(sum(self._rates.values()), 2),
            }
            messages.append(_encode(tail))
            self._records.clear()
            self._bytes = self._dropped = 0
        return messages

    async def send_all(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        """Send what is due until the page ends."""
        while not self.is_ended:
            await self._woken.wait()
            self._woken.clear()
            for message in self.take():
                await send(message)
            await asyncio.sleep(TURN_S)
