"""A bounded cache for threads that asks once: who comes while an answer is awaited waits for it.

What cannot be answered is remembered for a while too, if it is the kind that will not change soon,
so that a topic full of rubbish does not become a flood of questions. Other failures are not: the
next caller asks again.

One leader per key at a time; the lock is held for bookkeeping only, never while asking.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(slots=True)
class CacheStats:
    """How often the cache knew, and how often somebody had to ask."""

    hits: int = 0
    asked: int = 0
    waited: int = 0  # came while another thread was asking the same

    @property
    def hit_ratio(self) -> float:
        """Of all questions, the share that cost nothing. 1.0 when there were none."""
        known = self.hits + self.waited
        return known / (known + self.asked) if known + self.asked else 1.0


class _Entry(NamedTuple, Generic[_Value]):
    answer: _Value | None
    refusal: Exception | None  # there is one or the other
    end_s: float  # not true any more from here on
    weight: int


class SingleFlight(Generic[_Key, _Value]):
    """Answers by key. Those not used for longest are dropped once all weigh too much."""

    def __init__(
        self,
        weight_max: int,
        weigh: Callable[[_Value], int],
        clock: Callable[[], float],
        *,
        answer_s: float = float("inf"),
        lasting: tuple[type[Exception], ...] = (),
        passing: tuple[type[Exception], ...] = (),
        refusal_s: float = 0.0,
    ) -> None:
        self.stats = CacheStats()
        self._weight_max = weight_max
        self._weigh = weigh
        self._clock = clock
        self._answer_s = answer_s
        self._lasting = lasting  # failures that are remembered, for refusal_s
        self._passing = passing  # failures through which an old answer serves on, for as long
        self._refusal_s = refusal_s
        self._lock = threading.Lock()
        self._weight = 0
        self._entries: OrderedDict[_Key, _Entry[_Value]] = OrderedDict()
        self._flights: dict[_Key, Future[_Value]] = {}

    def find(self, key: _Key, ask: Callable[[], _Value]) -> _Value:
        """The answer; from `ask` if it is not known and nobody is asking already."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and self._clock() < entry.end_s:
                self.stats.hits += 1
                self._entries.move_to_end(key)
                return _told(entry)
            flight = self._flights.get(key)
            is_leader = flight is None
            if flight is None:
                flight = self._flights[key] = Future()
                self.stats.asked += 1
            else:
                self.stats.waited += 1
        return self._lead(key, ask, flight) if is_leader else flight.result()

    def _lead(self, key: _Key, ask: Callable[[], _Value], flight: Future[_Value]) -> _Value:
        try:
            answer = ask()
        except BaseException as failure:
            with self._lock:
                del self._flights[key]
                before = self._survivor(key, failure)
            if before is not None:
                flight.set_result(before)
                return before
            flight.set_exception(failure)
            raise
        with self._lock:
            del self._flights[key]
            self._keep_answer(key, answer)
        flight.set_result(answer)
        return answer

    def _survivor(self, key: _Key, failure: BaseException) -> _Value | None:
        """An answer that was known before and is good enough until the failure has passed."""
        end_s = self._clock() + self._refusal_s
        entry = self._entries.get(key)
        if isinstance(failure, self._passing) and entry is not None and entry.answer is not None:
            self._keep(key, entry._replace(end_s=end_s))
            return entry.answer
        if isinstance(failure, self._lasting):
            self._keep(key, _Entry(None, failure, end_s, 1))
        return None

    def keep(self, key: _Key, answer: _Value) -> None:
        """Remember an answer that came along with another one."""
        with self._lock:
            self._keep_answer(key, answer)

    def _keep_answer(self, key: _Key, answer: _Value) -> None:
        end_s = self._clock() + self._answer_s
        self._keep(key, _Entry(answer, None, end_s, self._weigh(answer)))

    def _keep(self, key: _Key, entry: _Entry[_Value]) -> None:
        before = self._entries.pop(key, None)
        self._weight += entry.weight - (before.weight if before is not None else 0)
        self._entries[key] = entry
        while self._weight > self._weight_max:
            _, dropped = self._entries.popitem(last=False)
            self._weight -= dropped.weight

    def __len__(self) -> int:
        return len(self._entries)


def _told(entry: _Entry[_Value]) -> _Value:
    if entry.refusal is not None:
        raise entry.refusal.with_traceback(None)
    assert entry.answer is not None, "an entry is an answer or a refusal"
    return entry.answer
