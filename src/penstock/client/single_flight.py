"""A bounded cache for threads that loads each key once: concurrent callers wait for one load.

Failures that will not change soon are cached for a while too, so that a topic full of unknown ids
does not become a flood of requests. Other failures are not: the next caller loads again.

One leader per key at a time; the lock is never held while a value is loaded.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(slots=True)
class CacheStats:
    """How often the cache had a value, and how often it was loaded."""

    hits: int = 0
    loads: int = 0
    waits: int = 0  # for a load by another thread

    @property
    def hit_ratio(self) -> float:
        """The share of look-ups without a load. 1.0 when there were none."""
        without_load = self.hits + self.waits
        total = without_load + self.loads
        return without_load / total if total else 1.0


class _Entry(NamedTuple, Generic[_Value]):
    value: _Value | None
    failure: Exception | None  # one or the other is set
    end_s: float  # expires here
    weight: int


class SingleFlight(Generic[_Key, _Value]):
    """Values by key. The least recently used are evicted when all together weigh too much."""

    def __init__(
        self,
        weight_max: int,
        weigh: Callable[[_Value], int],
        clock: Callable[[], float],
        *,
        value_s: float = float("inf"),
        lasting: tuple[type[Exception], ...] = (),
        passing: tuple[type[Exception], ...] = (),
        failure_s: float = 0.0,
    ) -> None:
        self.stats: Final = CacheStats()
        self._weight_max = weight_max
        self._weigh = weigh
        self._clock = clock
        self._value_s = value_s
        self._lasting = lasting  # failures that are cached, for failure_s
        self._passing = passing  # failures during which an expired value is used, for as long
        self._failure_s = failure_s
        self._lock = threading.Lock()
        self._weight = 0
        self._entries: OrderedDict[_Key, _Entry[_Value]] = OrderedDict()
        self._flights: dict[_Key, Future[_Value]] = {}

    def find(self, key: _Key, load: Callable[[], _Value]) -> _Value:
        """The value; from `load` if it is not cached and no other thread is loading it."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and self._clock() < entry.end_s:
                self.stats.hits += 1
                self._entries.move_to_end(key)
                return _value_of(entry)
            flight = self._flights.get(key)
            is_leader = flight is None
            if flight is None:
                flight = self._flights[key] = Future()
                self.stats.loads += 1
            else:
                self.stats.waits += 1
        return self._lead(key, load, flight) if is_leader else flight.result()

    def _lead(self, key: _Key, load: Callable[[], _Value], flight: Future[_Value]) -> _Value:
        try:
            value = load()
        except BaseException as failure:
            with self._lock:
                del self._flights[key]
                expired = self._on_failure(key, failure)
            if expired is not None:
                flight.set_result(expired)
                return expired
            flight.set_exception(failure)
            raise
        with self._lock:
            del self._flights[key]
            self._store_value(key, value)
        flight.set_result(value)
        return value

    def _on_failure(self, key: _Key, failure: BaseException) -> _Value | None:
        """An expired value that serves until the failure has passed; None if there is none."""
        end_s = self._clock() + self._failure_s
        entry = self._entries.get(key)
        if isinstance(failure, self._passing) and entry is not None and entry.value is not None:
            self._store(key, entry._replace(end_s=end_s))
            return entry.value
        if isinstance(failure, self._lasting):
            self._store(key, _Entry(None, failure, end_s, 1))
        return None

    def put(self, key: _Key, value: _Value) -> None:
        """Cache a value that was loaded in another way."""
        with self._lock:
            self._store_value(key, value)

    def _store_value(self, key: _Key, value: _Value) -> None:
        end_s = self._clock() + self._value_s
        self._store(key, _Entry(value, None, end_s, self._weigh(value)))

    def _store(self, key: _Key, entry: _Entry[_Value]) -> None:
        before = self._entries.pop(key, None)
        self._weight += entry.weight - (before.weight if before is not None else 0)
        self._entries[key] = entry
        while self._weight > self._weight_max:
            _, evicted = self._entries.popitem(last=False)
            self._weight -= evicted.weight

    def __len__(self) -> int:
        return len(self._entries)


def _value_of(entry: _Entry[_Value]) -> _Value:
    if entry.failure is not None:
        raise entry.failure.with_traceback(None)
    assert entry.value is not None, "an entry has a value or a failure"
    return entry.value
