"""Deadlines by key, for a machine that may not change anything while it decides.

Moving a deadline later, which every heartbeat does, costs one dictionary entry: the queue keeps the
old time, wakes once too early, and queues the key again. `wake_at` is therefore never late and
sometimes early.
"""

from heapq import heapify, heappop, heappush
from typing import NamedTuple

from penstock.model import Millis


class TimerKey(NamedTuple):
    """What will be due."""

    kind: str
    group_id: str
    member_id: str = ""


class Timers:
    """Deadlines. Changed by `put` and `advance` only."""

    __slots__ = ("_deadlines", "_queue", "_queued")

    def __init__(self) -> None:
        self._deadlines: dict[TimerKey, Millis] = {}
        self._queue: list[tuple[Millis, TimerKey]] = []
        self._queued: dict[TimerKey, Millis] = {}  # the earliest entry of each key in the queue

    def __len__(self) -> int:
        return len(self._deadlines)

    def at(self, key: TimerKey) -> Millis | None:
        """When the key is due, if ever."""
        return self._deadlines.get(key)

    def put(self, key: TimerKey, at: Millis | None) -> None:
        """Set, move, or with None drop a deadline."""
        if at is None:
            self._deadlines.pop(key, None)
            return
        self._deadlines[key] = at
        queued = self._queued.get(key)
        if queued is None or at < queued:
            self._queued[key] = at
            heappush(self._queue, (at, key))

    def wake_at(self) -> Millis | None:
        """When to look again."""
        return self._queue[0][0] if self._queue else None

    def due(self, now: Millis) -> list[TimerKey]:
        """The keys whose deadline has come, the earliest first. Changes nothing."""
        found: set[TimerKey] = set()
        open_places = [0]
        while open_places:
            place = open_places.pop()
            if place < len(self._queue) and self._queue[place][0] <= now:
                found.add(self._queue[place][1])
                open_places += (2 * place + 1, 2 * place + 2)  # a heap: children are never earlier
        deadlines = self._deadlines
        ready = [(deadlines[key], key) for key in found if deadlines.get(key, now + 1) <= now]
        return [key for _, key in sorted(ready)]

    def advance(self, now: Millis) -> None:
        """Forget the queue up to now, and queue again what was moved later.

        A key that is due and was not put again is dropped: whoever asked for `due` has acted on it.
        """
        while self._queue and self._queue[0][0] <= now:
            at, key = heappop(self._queue)
            if self._queued.get(key) != at:
                continue
            del self._queued[key]
            deadline = self._deadlines.get(key)
            if deadline is None:
                continue
            if deadline <= now:
                del self._deadlines[key]
            else:
                self.put(key, deadline)
        if len(self._queue) > 64 + 4 * len(self._deadlines):
            self._rebuild()

    def _rebuild(self) -> None:
        """Dropped deadlines leave entries behind; there are too many now."""
        self._queue = [(at, key) for key, at in self._deadlines.items()]
        heapify(self._queue)
        self._queued = dict(self._deadlines)
