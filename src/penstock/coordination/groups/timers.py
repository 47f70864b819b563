"""Deadlines by key, for a machine that may not change anything while it decides.

Moving a deadline later, which every heartbeat does, costs one dictionary entry: the queue keeps the
old time, wakes once too early, and queues the key again. `wake_at` is therefore never late and
sometimes early.
"""

from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from penstock.model import Millis

SESSION: Final = "session"  # of a member of either protocol: removed without a heartbeat
# Of a classic group
PENDING: Final = "pending"  # a member id was given out, and no join with it has come
INITIAL: Final = "initial"  # the first rebalance of an empty group waits for more members
JOIN: Final = "join"  # members must have joined
SYNC: Final = "sync"  # members must have requested their assignment
# Of a group of the consumer protocol
REVOKE: Final = "revoke"  # a member must have given partitions back
REJOIN: Final = "rejoin"  # a classic member must have joined again
FETCH: Final = "fetch"  # a classic member must have requested its assignment after a join
MEMBER_TIMERS: Final = (SESSION, REVOKE, REJOIN, FETCH)
# Of the coordinator
EXPIRY: Final = "expiry"  # look for expired offsets


class TimerKey(NamedTuple):
    """What will be due."""

    kind: str
    group_id: str
    member_id: str = ""


class Timers:
    """Deadlines. Changed by `put` and `advance` only."""

    __slots__ = ("_deadlines", "_queued", "queue")

    def __init__(self) -> None:
        self.queue: list[tuple[Millis, TimerKey]] = []  # a heap; for reading only
        self._deadlines: dict[TimerKey, Millis] = {}
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
            heappush(self.queue, (at, key))

    def wake_at(self) -> Millis | None:
        """When to look again."""
        return self.queue[0][0] if self.queue else None

    def due(self, now: Millis) -> list[TimerKey]:
        """The keys whose deadline has come, the earliest first. Changes nothing."""
        reached: set[TimerKey] = set()
        indexes = [0]
        while indexes:
            index = indexes.pop()
            if index < len(self.queue) and self.queue[index][0] <= now:
                reached.add(self.queue[index][1])
                indexes += (2 * index + 1, 2 * index + 2)  # a heap: children are never earlier
        deadlines = self._deadlines
        ready = [(deadlines[key], key) for key in reached if deadlines.get(key, now + 1) <= now]
        return [key for _, key in sorted(ready)]

    def advance(self, now: Millis) -> None:
        """Empty the queue up to now, and queue again what was moved later.

        A key that is due and was not put again is dropped: it was acted on.
        """
        while self.queue and self.queue[0][0] <= now:
            at, key = heappop(self.queue)
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
        if len(self.queue) > 64 + 4 * len(self._deadlines):
            self._rebuild()

    def _rebuild(self) -> None:
        """Dropped deadlines leave entries behind; there are too many now."""
        self.queue = [(at, key) for key, at in self._deadlines.items()]
        heapify(self.queue)
        self._queued = dict(self._deadlines)
