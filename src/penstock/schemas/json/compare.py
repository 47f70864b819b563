"""The differences between the schema that wrote and the schema that reads.

Comparisons are generators, so schemas of any depth are compared without recursion. A pair is
compared once. A pair that occurs inside itself belongs to a schema that refers to itself: it is
assumed to be compatible, and if that proves wrong everything is compared again with that
knowledge, until nothing changes. `StepBudget` limits all of this together.

A proposal is compared with many versions that differ little from each other, so the differences
between two schemas without references are cached for later comparisons.
"""

from typing import Final, TypeAlias

from penstock.schemas.compare_limits import StepBudget
from penstock.schemas.json.compare_pairs import CompareContext, Comparison, Differences, Pair
from penstock.schemas.json.compare_rules import compare_nodes
from penstock.schemas.json.differences import JsonDifference
from penstock.schemas.json.tree import JsonNode

PAIR_STEPS: Final = 10  # of the budget, to compare two schemas without their parts
CACHE_MAX: Final = 50_000  # pairs and their differences; at the limit the cache is cleared

_Key: TypeAlias = tuple[int, int]
_CacheKey: TypeAlias = tuple[object, ...]  # everything that the differences of a pair depend on


class _PairCache:
    """Differences of pairs, for later comparisons. Threads may share it."""

    def __init__(self) -> None:
        self._differences: dict[_CacheKey, Differences] = {}
        self._size = 0

    def find(self, key: _CacheKey) -> Differences | None:
        return self._differences.get(key)

    def add(self, key: _CacheKey, differences: Differences) -> None:
        self._size += 1 + len(differences)
        if self._size > CACHE_MAX:
            self.clear()
        else:
            self._differences[key] = differences

    def clear(self) -> None:
        self._differences = {}
        self._size = 0


_cache: Final = _PairCache()


def clear_cache() -> None:
    """Remove everything that earlier comparisons cached."""
    _cache.clear()


def compare(old: JsonNode, new: JsonNode, allowed: frozenset[str]) -> Differences:
    """All differences, allowed ones included; BudgetExceededError if there are too many pairs."""
    incompatible: dict[_Key, Differences] = {}
    context = CompareContext(allowed, StepBudget())
    while True:
        attempt = _Attempt(context, incompatible)
        differences = attempt.compare(old, new)
        now_incompatible = attempt.incompatible()
        if not attempt.has_assumed or now_incompatible.keys() == incompatible.keys():
            return differences
        incompatible = now_incompatible


class _Attempt:
    """One pass over all pairs, with the pairs that earlier passes proved incompatible."""

    def __init__(self, context: CompareContext, incompatible: dict[_Key, Differences]) -> None:
        self.has_assumed = False  # that a pair is compatible, before it was compared
        self._context = context
        self._incompatible = incompatible
        self._compared: dict[_Key, Differences] = {}
        self._in_progress: dict[_Key, Comparison] = {}  # a stack: the last one runs
        self._cache_keys: dict[_Key, _CacheKey] = {}  # of pairs in progress that can be cached

    def incompatible(self) -> dict[_Key, Differences]:
        """The compared pairs whose reader cannot read what the writer writes."""
        return {
            key: differences
            for key, differences in self._compared.items()
            if not self._context.allows(differences)
        }

    def compare(self, old: JsonNode, new: JsonNode) -> Differences:
        """All differences between two schemas."""
        self._start(old, new)
        result: Differences | None = None
        while self._in_progress:
            key, comparison = next(reversed(self._in_progress.items()))
            try:
                pair = next(comparison) if result is None else comparison.send(result)
            except StopIteration as finished:
                result = self._compared[key] = finished.value
                del self._in_progress[key]
                cache_key = self._cache_keys.pop(key, None)
                if cache_key is not None:
                    _cache.add(cache_key, finished.value)
            else:
                result = self._known(pair)
        assert result is not None
        return result

    def _known(self, pair: Pair) -> Differences | None:
        """The differences of a pair, if they are known; otherwise its comparison starts."""
        old, new = pair
        if old is None or new is None:
            if old is new:
                return ()
            return (JsonDifference("SCHEMA_ADDED" if old is None else "SCHEMA_REMOVED"),)
        key = (id(old), id(new))
        known = self._compared.get(key)
        if known is None and key not in self._in_progress:
            cache_key = _cache_key(old, new, self._context)
            if cache_key is not None:
                known = _cache.find(cache_key)
                if known is None:
                    self._cache_keys[key] = cache_key
            if known is None:
                self._start(old, new)
        elif known is None:
            known = self._incompatible.get(key)
            if known is None:
                self.has_assumed = True
                known = ()
        return known

    def _start(self, old: JsonNode, new: JsonNode) -> None:
        self._context.budget.spend(PAIR_STEPS)
        self._in_progress[id(old), id(new)] = compare_nodes(old, new, self._context)


def _cache_key(old: JsonNode, new: JsonNode, context: CompareContext) -> _CacheKey | None:
    """None if the differences depend on the targets of references."""
    before = old.tree.fingerprint(old.keywords)
    after = new.tree.fingerprint(new.keywords)
    if before is None or after is None:
        return None
    return (context.allowed, before, *_aspect(old), after, *_aspect(new))


def _aspect(node: JsonNode) -> tuple[object, ...]:
    return node.kind, node.criterion, node.is_integer, node.draft
