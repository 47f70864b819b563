"""The rules for `allOf`, `anyOf` and `oneOf`: each branch must match one of the other schema.

A maximum matching pairs as many branches as possible. Branches with the same text and the same
index are tried first, so combinations that changed little need few comparisons.
"""

from collections import deque
from collections.abc import Generator, Iterator
from typing import TypeAlias

from penstock.schemas.json.compare_pairs import CompareContext, Comparison, Differences, Pair
from penstock.schemas.json.differences import JsonDifference
from penstock.schemas.json.jsontext import same_value_key
from penstock.schemas.json.tree import JsonNode

_Question: TypeAlias = Generator[Pair, Differences, bool]


def compare_combined(old: JsonNode, new: JsonNode, context: CompareContext) -> Comparison:
    """All differences between two combinations of schemas."""
    criterion = _criterion_change(old, new)
    if criterion == "COMBINED_TYPE_CHANGED":
        return (JsonDifference(criterion),)
    differences: Differences = (JsonDifference(criterion),) if criterion else ()
    before, after = len(old.branches), len(new.branches)
    if before < after:
        kind = "PRODUCT_TYPE_EXTENDED" if new.criterion == "allOf" else "SUM_TYPE_EXTENDED"
        differences += (JsonDifference(kind),)
    elif before > after:
        kind = "PRODUCT_TYPE_NARROWED" if old.criterion == "allOf" else "SUM_TYPE_NARROWED"
        differences += (JsonDifference(kind),)
    matching = _Matching(old.branches, new.branches, context)
    pairs = yield from matching.pairs()
    if pairs < min(before, after):
        differences += (JsonDifference("COMBINED_TYPE_SUBSCHEMAS_CHANGED"),)
    return differences


def _criterion_change(old: JsonNode, new: JsonNode) -> str:
    if old.criterion == new.criterion:
        return ""
    was_single, is_single = len(old.branches) == 1, len(new.branches) == 1
    if (
        new.criterion == "anyOf"
        or (was_single and (is_single or new.criterion == "oneOf"))
        or (is_single and old.criterion == "allOf")
    ):
        return "COMBINED_TYPE_EXTENDED"
    return "COMBINED_TYPE_CHANGED"


class _Matching:
    """The largest set of pairs of branches in which the new one reads the old one."""

    def __init__(
        self, old: tuple[JsonNode, ...], new: tuple[JsonNode, ...], context: CompareContext
    ) -> None:
        self._old = old
        self._new = new
        self._context = context
        self._partner: dict[int, int] = {}  # index of a new branch -> of its old one
        self._reads: dict[tuple[int, int], bool] = {}
        self._by_content: dict[object, list[int]] = {}  # indexes of new branches, by content
        for index, node in enumerate(new):
            self._by_content.setdefault(same_value_key(node.keywords), []).append(index)

    def pairs(self) -> Generator[Pair, Differences, int]:
        """The number of pairs."""
        for index in range(len(self._old)):
            yield from self._find_partner(index)
            if len(self._partner) == len(self._new):
                break
        return len(self._partner)

    def _find_partner(self, start: int) -> Generator[Pair, Differences, None]:
        """Pair one more old branch; others may get another partner for it."""
        reached: dict[int, int] = {}  # new branch -> old branch it was reached from
        waiting = deque((start,))
        while waiting:
            old = waiting.popleft()
            for new in self._candidates(old):
                if new in reached or not (yield from self._is_read(old, new)):
                    continue
                reached[new] = old
                if new not in self._partner:
                    self._reassign(new, reached, start)
                    return
                waiting.append(self._partner[new])

    def _reassign(self, free: int, reached: dict[int, int], start: int) -> None:
        """Give each old branch on the path from `start` the new branch that it reaches."""
        partner_of = {old: new for new, old in self._partner.items()}
        new: int | None = free
        while new is not None:
            old = reached[new]
            left = partner_of.get(old)
            self._partner[new] = old
            new = None if old == start else left

    def _candidates(self, old: int) -> Iterator[int]:
        """Indexes of new branches, the likeliest first; some are repeated."""
        yield from self._by_content.get(same_value_key(self._old[old].keywords), ())
        if old < len(self._new):
            yield old
        yield from range(len(self._new))

    def _is_read(self, old: int, new: int) -> _Question:
        self._context.budget.spend()
        known = self._reads.get((old, new))
        if known is None:
            differences = yield Pair(self._old[old], self._new[new])
            known = self._reads[old, new] = self._context.allows(differences)
        return known
