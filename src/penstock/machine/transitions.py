"""The legal moves between the states of a thing, as data.

Asserted on every move, and drawn into the documentation.
"""

from collections.abc import Callable
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

KindT = TypeVar("KindT", bound=Enum)


class Move(NamedTuple, Generic[KindT]):
    """One legal move, and when it is made."""

    before: KindT
    after: KindT
    when: str


class Transitions(Generic[KindT]):
    """All legal moves of one kind of thing. Staying in a state is a move where it is listed."""

    def __init__(
        self,
        subject: str,
        *moves: Move[KindT],
        name: Callable[[KindT], str] = lambda kind: kind.name,
    ) -> None:
        self.subject = subject
        self.moves = moves
        self._name = name
        self._legal = frozenset((move.before, move.after) for move in moves)
        assert len(self._legal) == len(moves), "a move is listed twice"

    def check(self, before: KindT, after: KindT) -> None:
        """Assert that the move is legal."""
        assert (before, after) in self._legal, (
            f"{self.subject}: illegal move from {self._name(before)} to {self._name(after)}"
        )

    def diagram(self) -> str:
        """The moves in text, one per line."""
        before_width = max(len(self._name(move.before)) for move in self.moves)
        after_width = max(len(self._name(move.after)) for move in self.moves)
        return "\n".join(
            f"{self._name(before):{before_width}} -> {self._name(after):{after_width}}  {when}"
            for before, after, when in self.moves
        )
