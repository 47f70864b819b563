"""Limits on the cost and the result of comparing two schemas.

Every comparison ends: within a number of steps, with a bounded number of differences, or with one
difference of the kind `UNCHECKABLE` that says why there is no result.
"""

from collections.abc import Callable, Iterable
from typing import Final

from penstock.schemas.model import Difference, InvalidSchemaError

UNCHECKABLE: Final = "UNCHECKABLE"  # our own kind of difference: the comparison has no result
STEPS_MAX: Final = 300_000  # of one comparison; about half a second
DIFFERENCES_MAX: Final = 1_000  # reported for two schemas, the first in order
DIFFERENCES_CHARACTERS_MAX: Final = 1 << 20  # of their texts
TEXT_CHARACTERS_MAX: Final = 10 * 1024  # of one list or schema inside a text


class BudgetExceededError(Exception):
    """The comparison of two schemas takes too many steps."""


class UncheckableError(Exception):
    """The two schemas cannot be compared; the message is Confluent's."""


class StepBudget:
    """Limits the cost of one comparison.

    Counts steps instead of seconds, so that a result does not depend on the machine. A step takes
    about a microsecond and less than 200 bytes: a member of a type, a look-up; comparing a pair of
    types takes several.
    """

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = STEPS_MAX

    def spend(self, steps: int = 1) -> None:
        """Count steps before they are taken; BudgetExceededError when none are left."""
        self._left -= steps
        if self._left < 0:
            raise BudgetExceededError(
                f"it would take more than {STEPS_MAX} steps, because the types of the two schemas "
                "refer to each other in too many combinations; use fewer or smaller unions, or "
                "split the schema"
            )


def first_differences(
    compare: Callable[[], Iterable[Difference]], root_path: str
) -> tuple[Difference, ...]:
    """The differences that a comparison finds, or one that says why it has no result."""
    try:
        return limit_differences(compare())
    except (BudgetExceededError, UncheckableError, InvalidSchemaError) as error:
        return (_uncheckable(str(error), root_path),)
    except RecursionError:
        reason = "the types of the two schemas refer to each other too deeply"
        return (_uncheckable(reason, root_path),)


def limit_differences(differences: Iterable[Difference]) -> tuple[Difference, ...]:
    """As many differences as are worth a response; at least one if there is one."""
    first: list[Difference] = []
    characters = 0
    for difference in differences:
        characters += characters_of((difference,))
        if first and characters > DIFFERENCES_CHARACTERS_MAX:
            break
        first.append(difference)
        if len(first) == DIFFERENCES_MAX:
            break
    return tuple(first)


def _uncheckable(reason: str, path: str) -> Difference:
    sentence = f"Unexpected exception during compatibility check: {reason}"  # Confluent's words
    return Difference(UNCHECKABLE, path, sentence)


def characters_of(differences: Iterable[Difference]) -> int:
    """The size of their texts."""
    return sum(
        len(difference.path) + len(difference.description) + len(difference.additional)
        for difference in differences
    )


def shortened(text: str) -> str:
    """A list or schema as part of a text, cut if it is long."""
    return text if len(text) <= TEXT_CHARACTERS_MAX else f"{text[:TEXT_CHARACTERS_MAX]}..."
