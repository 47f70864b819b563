"""How a comparison asks for another: it yields a pair and is sent what was found in it."""

from collections.abc import Generator
from typing import NamedTuple, TypeAlias

from penstock.schemas.json.differences import Found
from penstock.schemas.json.tree import Node


class Pair(NamedTuple):
    """Two schemas to compare, the writer's and the reader's; None where there is none."""

    old: Node | None
    new: Node | None


Findings: TypeAlias = tuple[Found, ...]
Comparison: TypeAlias = Generator[Pair, Findings, Findings]


class Context(NamedTuple):
    """What a comparison has to know beside its pair."""

    allowed: frozenset[str]  # kinds of difference that do not make a pair incompatible

    def allows(self, findings: Findings) -> bool:
        """Whether the reader can read all that the writer writes, in spite of the differences."""
        return all(found.kind in self.allowed for found in findings)


def below(findings: Findings, *path: str) -> Findings:
    """What was found in a part, seen from the whole."""
    for step in reversed(path):
        findings = tuple([Found(found.kind, (step, found.path)) for found in findings])
    return findings


def compared(old: Node | None, new: Node | None, *path: str) -> Comparison:
    """What is found in a part, seen from the whole."""
    findings = yield Pair(old, new)
    return below(findings, *path)
