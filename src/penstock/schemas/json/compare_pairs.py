"""How a comparison asks for another: it yields a pair and is sent what was found in it."""

from collections.abc import Callable, Generator, Iterator, Set
from typing import NamedTuple, TypeAlias

from penstock.schemas.json.differences import JsonDifference
from penstock.schemas.json.tree import Node
from penstock.schemas.model import STEPS_MAX, StepBudget


class Pair(NamedTuple):
    """Two schemas to compare, the writer's and the reader's; None where there is none."""

    old: Node | None
    new: Node | None


class Below:
    """What was found in a part, seen from the whole: refers to it, because parts are shared."""

    __slots__ = ("findings", "kinds", "steps")

    def __init__(self, steps: tuple[str, ...], findings: "Findings") -> None:
        self.steps = steps
        self.findings = findings
        kinds: Set[str] = _kinds(findings[0])
        if len(findings) > 1:
            kinds = frozenset[str]().union(*map(_kinds, findings))
        self.kinds = kinds


Findings: TypeAlias = tuple[JsonDifference | Below, ...]
Comparison: TypeAlias = Generator[Pair, Findings, Findings]


class CompareContext(NamedTuple):
    """What a comparison has to know beside its pair."""

    allowed: frozenset[str]  # kinds of difference that do not make a pair incompatible
    budget: StepBudget

    def allows(self, findings: Findings) -> bool:
        """Whether the reader can read all that the writer writes, in spite of the differences."""
        return all(_kinds(one) <= self.allowed for one in findings)


def _kinds(one: JsonDifference | Below) -> Set[str]:
    return {one.kind} if isinstance(one, JsonDifference) else one.kinds


def below(findings: Findings, *path: str) -> Findings:
    """What was found in a part, seen from the whole."""
    return (Below(path, findings),) if findings else ()


def compared(old: Node | None, new: Node | None, *path: str) -> Comparison:
    """What is found in a part, seen from the whole."""
    findings = yield Pair(old, new)
    return below(findings, *path) if path else findings


def listed(findings: Findings, is_wanted: Callable[[str], bool]) -> Iterator[JsonDifference]:
    """Findings of the wanted kinds with their whole paths, the first ones.

    There may be more than can ever be listed, since parts are shared. So the search ends after
    `STEPS_MAX` places, but not before there is one.
    """
    waiting: list[tuple[tuple[str, ...], JsonDifference | Below]] = [
        ((), one) for one in reversed(findings)
    ]
    has_one = False
    looked_at = 0
    while waiting and not (has_one and looked_at > STEPS_MAX):
        path, one = waiting.pop()
        looked_at += 1
        if not any(map(is_wanted, _kinds(one))):
            continue
        if isinstance(one, JsonDifference):
            yield JsonDifference(one.kind, (*path, *one.path))
            has_one = True
        else:
            path = (*path, *one.steps)
            waiting += [(path, part) for part in reversed(one.findings)]
