"""How the comparison of two schemas requests that of two others, and the form of its result.

A comparison is a generator: it yields a pair and is sent the differences of that pair.
"""

from collections.abc import Callable, Generator, Iterator, Set
from typing import Final, NamedTuple, TypeAlias

from penstock.schemas.compare_limits import STEPS_MAX, StepBudget
from penstock.schemas.json.differences import JsonDifference
from penstock.schemas.json.tree import JsonNode


class Pair(NamedTuple):
    """Two schemas to compare, the writer's and the reader's; None where there is none."""

    old: JsonNode | None
    new: JsonNode | None


class PartDifferences:
    """The differences of a part. Holds a reference to them, because parts are shared."""

    __slots__ = ("differences", "kinds", "steps")

    def __init__(self, steps: tuple[str, ...], differences: "Differences") -> None:
        self.steps: Final = steps
        self.differences: Final = differences
        kinds: Set[str] = _kinds(differences[0])
        if len(differences) > 1:
            kinds = frozenset[str]().union(*map(_kinds, differences))
        self.kinds: Final = kinds


Differences: TypeAlias = tuple[JsonDifference | PartDifferences, ...]
Comparison: TypeAlias = Generator[Pair, Differences, Differences]


class CompareContext(NamedTuple):
    """The policy and the budget of one comparison."""

    allowed: frozenset[str]  # kinds of differences that are compatible
    budget: StepBudget

    def allows(self, differences: Differences) -> bool:
        """Whether the reader can read everything that the writer writes."""
        return all(_kinds(difference) <= self.allowed for difference in differences)


def _kinds(difference: JsonDifference | PartDifferences) -> Set[str]:
    return {difference.kind} if isinstance(difference, JsonDifference) else difference.kinds


def in_part(differences: Differences, *path: str) -> Differences:
    """The differences of a part, as differences of the whole."""
    return (PartDifferences(path, differences),) if differences else ()


def compare_part(old: JsonNode | None, new: JsonNode | None, *path: str) -> Comparison:
    """Compare two parts; the result is in terms of the whole."""
    differences = yield Pair(old, new)
    return in_part(differences, *path) if path else differences


def listed(
    differences: Differences, is_included: Callable[[str], bool]
) -> Iterator[JsonDifference]:
    """The first differences of the included kinds, with their whole paths.

    Parts are shared, so there may be more than can ever be listed: the search ends after
    `STEPS_MAX` steps, but not before it has one difference.
    """
    waiting: list[tuple[tuple[str, ...], JsonDifference | PartDifferences]] = [
        ((), difference) for difference in reversed(differences)
    ]
    has_one = False
    steps = 0
    while waiting and not (has_one and steps > STEPS_MAX):
        path, difference = waiting.pop()
        steps += 1
        if not any(map(is_included, _kinds(difference))):
            continue
        if isinstance(difference, JsonDifference):
            yield JsonDifference(difference.kind, (*path, *difference.path))
            has_one = True
        else:
            path = (*path, *difference.steps)
            waiting += [(path, inner) for inner in reversed(difference.differences)]
