"""What differs between the schema that wrote and the schema that reads.

Each comparison is a generator (`rules.py`), so schemas of any depth are compared without recursion.
A pair is compared once. A pair that is met again while it is being compared belongs to a schema
that refers to itself: it is taken to be compatible, and when that turns out wrong everything is
compared again knowing it, until nothing new is found out. `Budget` limits all of it together.

A proposal is compared with many versions that differ little from each other, so what was found
between two schemas that refer to nothing is kept for the next comparison with the same two in it.
"""

from typing import Final, TypeAlias

from penstock.schemas.json.compare_pairs import CompareContext, Comparison, Findings, Pair
from penstock.schemas.json.compare_rules import compare_nodes
from penstock.schemas.json.differences import JsonDifference
from penstock.schemas.json.tree import Node
from penstock.schemas.model import StepBudget

PAIR_STEPS: Final = 10  # of the budget, for the comparison of two schemas without their parts
KEPT_MAX: Final = 50_000  # pairs and their findings, for comparisons to come; then all are dropped

_Key: TypeAlias = tuple[int, int]
_Texts: TypeAlias = tuple[object, ...]  # what two schemas are written as, and all else that counts


class _Kept:
    """Findings of pairs, for comparisons to come. May be used by several threads."""

    def __init__(self) -> None:
        self._findings: dict[_Texts, Findings] = {}
        self._weight = 0

    def find(self, texts: _Texts) -> Findings | None:
        return self._findings.get(texts)

    def keep(self, texts: _Texts, findings: Findings) -> None:
        self._weight += 1 + len(findings)
        if self._weight > KEPT_MAX:
            self.clear()
        else:
            self._findings[texts] = findings

    def clear(self) -> None:
        self._findings = {}
        self._weight = 0


_kept: Final = _Kept()


def forget() -> None:
    """Keep nothing of the comparisons made so far."""
    _kept.clear()


def compare(old: Node, new: Node, allowed: frozenset[str]) -> Findings:
    """All differences, allowed ones included; BudgetExceededError if there are too many pairs."""
    wrong: dict[_Key, Findings] = {}
    context = CompareContext(allowed, StepBudget())
    while True:
        attempt = _Attempt(context, wrong)
        findings = attempt.findings(old, new)
        known_wrong = attempt.incompatible()
        if not attempt.was_optimistic or known_wrong.keys() == wrong.keys():
            return findings
        wrong = known_wrong


class _Attempt:
    """One pass over all pairs, with what earlier passes know to be incompatible."""

    def __init__(self, context: CompareContext, wrong: dict[_Key, Findings]) -> None:
        self.was_optimistic = False
        self._context = context
        self._wrong = wrong
        self._known: dict[_Key, Findings] = {}
        self._under_way: dict[_Key, Comparison] = {}  # the one asked for last is the last
        self._texts: dict[_Key, _Texts] = {}  # of those that are to be kept

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
                answer = self._known[key] = finished.value
                del self._under_way[key]
                texts = self._texts.pop(key, None)
                if texts is not None:
                    _kept.keep(texts, finished.value)
            else:
                answer = self._answer(pair)
        assert answer is not None
        return answer

    def _answer(self, pair: Pair) -> Findings | None:
        """What is known of a pair; if nothing, it is looked at next."""
        old, new = pair
        if old is None or new is None:
            if old is new:
                return ()
            return (JsonDifference("SCHEMA_ADDED" if old is None else "SCHEMA_REMOVED"),)
        key = (id(old), id(new))
        known = self._known.get(key)
        if known is None and key not in self._under_way:
            texts = _texts_of(old, new, self._context)
            if texts is not None:
                known = _kept.find(texts)
                if known is None:
                    self._texts[key] = texts
            if known is None:
                self._start(old, new)
        elif known is None:
            known = self._wrong.get(key)
            if known is None:
                self.was_optimistic = True
                known = ()
        return known

    def _start(self, old: Node, new: Node) -> None:
        self._context.budget.spend(PAIR_STEPS)
        self._under_way[id(old), id(new)] = compare_nodes(old, new, self._context)


def _texts_of(old: Node, new: Node, context: CompareContext) -> _Texts | None:
    """What the findings of a pair depend on; None if they depend on schemas that are elsewhere."""
    before = old.tree.fingerprint(old.keywords)
    after = new.tree.fingerprint(new.keywords)
    if before is None or after is None:
        return None
    return (context.allowed, before, *_aspect(old), after, *_aspect(new))


def _aspect(node: Node) -> tuple[object, ...]:
    return node.kind, node.criterion, node.is_integer, node.draft
