"""The rules for `allOf`, `anyOf` and `oneOf`: each branch must find one in the other schema.

Branches are paired so that as many as possible find a partner of their own. A branch is first
offered its like and the one in its place, so unions that changed little need few comparisons.
"""

from collections import deque
from collections.abc import Generator, Iterator
from typing import TypeAlias

from penstock.schemas.json.compare_pairs import CompareContext, Comparison, Findings, Pair
from penstock.schemas.json.differences import JsonDifference
from penstock.schemas.json.jsontext import same_value_key
from penstock.schemas.json.tree import Node

_Asking: TypeAlias = Generator[Pair, Findings, bool]


def compare_combined(old: Node, new: Node, context: CompareContext) -> Comparison:
    """All differences between two combinations of schemas."""
    criterion = _criterion_change(old, new)
    if criterion == "COMBINED_TYPE_CHANGED":
        return (JsonDifference(criterion),)
    found: Findings = (JsonDifference(criterion),) if criterion else ()
    before, after = len(old.branches), len(new.branches)
    if before < after:
        kind = "PRODUCT_TYPE_EXTENDED" if new.criterion == "allOf" else "SUM_TYPE_EXTENDED"
        found += (JsonDifference(kind),)
    elif before > after:
        kind = "PRODUCT_TYPE_NARROWED" if old.criterion == "allOf" else "SUM_TYPE_NARROWED"
        found += (JsonDifference(kind),)
    matching = _Matching(old.branches, new.branches, context)
    pairs = yield from matching.pairs()
    if pairs < min(before, after):
        found += (JsonDifference("COMBINED_TYPE_SUBSCHEMAS_CHANGED"),)
    return found


def _criterion_change(old: Node, new: Node) -> str:
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
    """As many pairs of branches as possible whose new one reads the old one."""

    def __init__(
        self, old: tuple[Node, ...], new: tuple[Node, ...], context: CompareContext
    ) -> None:
        self._old = old
        self._new = new
        self._context = context
        self._partner: dict[int, int] = {}  # place of a new branch -> place of the old one
        self._reads: dict[tuple[int, int], bool] = {}
        self._alike: dict[object, list[int]] = {}  # places of new branches, by what they say
        for place, node in enumerate(new):
            self._alike.setdefault(same_value_key(node.keywords), []).append(place)

    def pairs(self) -> Generator[Pair, Findings, int]:
        """The number of pairs."""
        for place in range(len(self._old)):
            yield from self._find_partner(place)
            if len(self._partner) == len(self._new):
                break
        return len(self._partner)

    def _find_partner(self, place: int) -> Generator[Pair, Findings, None]:
        """Pair one more old branch, others moving to another partner if need be."""
        reached: dict[int, int] = {}  # place of a new branch -> the old one it was reached from
        waiting = deque((place,))
        while waiting:
            old = waiting.popleft()
            for new in self._candidates(old):
                if new in reached or not (yield from self._is_read(old, new)):
                    continue
                reached[new] = old
                if new not in self._partner:
                    self._move_along(new, reached, place)
                    return
                waiting.append(self._partner[new])

    def _move_along(self, free: int, reached: dict[int, int], place: int) -> None:
        """Give each old branch on the way from `place` the new one it was found to reach."""
        partner_of = {old: new for new, old in self._partner.items()}
        new: int | None = free
        while new is not None:
            old = reached[new]
            left = partner_of.get(old)
            self._partner[new] = old
            new = None if old == place else left

    def _candidates(self, old: int) -> Iterator[int]:
        """Places of new branches, the likeliest first; some come twice."""
        yield from self._alike.get(same_value_key(self._old[old].keywords), ())
        if old < len(self._new):
            yield old
        yield from range(len(self._new))

    def _is_read(self, old: int, new: int) -> _Asking:
        self._context.budget.spend()
        known = self._reads.get((old, new))
        if known is None:
            findings = yield Pair(self._old[old], self._new[new])
            known = self._reads[old, new] = self._context.allows(findings)
        return known
