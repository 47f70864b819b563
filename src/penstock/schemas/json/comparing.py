"""What differs between the schema that wrote and the schema that reads.

Each comparison is a generator (`rules.py`), so schemas of any depth are compared without recursion.
A pair is compared once. A pair that is met again while it is being compared belongs to a schema
that refers to itself: it is taken to be compatible, and when that turns out wrong everything is
compared again knowing it, until nothing new is found out.
"""

from typing import Final, TypeAlias

from penstock.schemas.json.differences import Found
from penstock.schemas.json.pairs import Comparison, Context, Findings, Pair
from penstock.schemas.json.rules import compare_nodes
from penstock.schemas.json.tree import Node

PAIRS_MAX: Final = 50_000  # compared for one answer; beyond, the answer is that there is none
FINDINGS_MAX: Final = 1_000  # kept for one pair; shared parts would double them at each level

_Key: TypeAlias = tuple[int, int]


class Uncheckable(Exception):
    """The two schemas refer to their parts in too many ways."""


def compare(old: Node, new: Node, allowed: frozenset[str]) -> Findings:
    """All differences, allowed ones included."""
    wrong: dict[_Key, Findings] = {}
    pairs_left = PAIRS_MAX
    while True:
        attempt = _Attempt(Context(allowed), wrong, pairs_left)
        findings = attempt.findings(old, new)
        known_wrong = attempt.incompatible()
        if not attempt.was_optimistic or known_wrong.keys() == wrong.keys():
            return findings
        pairs_left = attempt.pairs_left
        wrong = known_wrong


class _Attempt:
    """One pass over all pairs, with what earlier passes know to be incompatible."""

    def __init__(self, context: Context, wrong: dict[_Key, Findings], pairs_left: int) -> None:
        self.was_optimistic = False
        self.pairs_left = pairs_left
        self._context = context
        self._wrong = wrong
        self._known: dict[_Key, Findings] = {}
        self._under_way: dict[_Key, Comparison] = {}  # the one asked for last is the last

    def incompatible(self) -> dict[_Key, Findings]:
        """The pairs compared so far whose reader cannot read what the writer writes."""
        return {
            key: findings
            for key, findings in self._known.items()
            if not self._context.allows(findings)
        }

    def findings(self, old: Node, new: Node) -> Findings:
        """All differences between two schemas."""
        self._start(old, new)
        answer: Findings | None = None
        while self._under_way:
            key, comparison = next(reversed(self._under_way.items()))
            try:
                pair = next(comparison) if answer is None else comparison.send(answer)
            except StopIteration as finished:
                answer = self._known[key] = self._bounded(finished.value)
                del self._under_way[key]
            else:
                answer = self._answer(pair)
        assert answer is not None
        return answer

    def _bounded(self, findings: Findings) -> Findings:
        if len(findings) <= FINDINGS_MAX:
            return findings
        refused = [found for found in findings if found.kind not in self._context.allowed]
        return tuple(refused[:FINDINGS_MAX]) or findings[:FINDINGS_MAX]

    def _answer(self, pair: Pair) -> Findings | None:
        """What is known of a pair; if nothing, it is looked at next."""
        old, new = pair
        if old is None or new is None:
            if old is new:
                return ()
            return (Found("SCHEMA_ADDED" if old is None else "SCHEMA_REMOVED"),)
        key = (id(old), id(new))
        known = self._known.get(key)
        if known is None and key not in self._under_way:
            self._start(old, new)
        elif known is None:
            known = self._wrong.get(key)
            if known is None:
                self.was_optimistic = True
                known = ()
        return known

    def _start(self, old: Node, new: Node) -> None:
        self.pairs_left -= 1
        if self.pairs_left < 0:
            raise Uncheckable(f"more than {PAIRS_MAX} pairs of schemas would have to be compared")
        self._under_way[id(old), id(new)] = compare_nodes(old, new, self._context)
