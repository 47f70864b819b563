"""The lag of each group in the last hour, a point every five seconds. Pure.

Bounded: `POINTS_MAX` points of `GROUPS_MAX` groups. A group that is new when there are that many
replaces the one with the smallest lag; what is dropped is only history.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from penstock.model import Millis

POINTS_MAX: Final = 720
GROUPS_MAX: Final = 2_000


class LagPoint(NamedTuple):
    """How far a group was behind, in all its topics."""

    at: Millis
    records: int
    seconds: float


class LagHistory:
    """Rings of points by group."""

    def __init__(self, points_max: int = POINTS_MAX, groups_max: int = GROUPS_MAX) -> None:
        self._points_max = points_max
        self._groups_max = groups_max
        self._rings: dict[str, deque[LagPoint]] = {}

    def add(self, at: Millis, lags: Mapping[str, tuple[int, float]]) -> None:
        """Lag in records and seconds of all groups now; a group that is not named is gone."""
        for group in self._rings.keys() - lags.keys():
            del self._rings[group]
        for group, (records, seconds) in lags.items():
            ring = self._rings.get(group)
            if ring is None:
                if len(self._rings) >= self._groups_max:
                    self._drop(keep=lags)
                ring = self._rings[group] = deque(maxlen=self._points_max)
            ring.append(LagPoint(at, records, seconds))

    def of(self, group: str) -> Sequence[LagPoint]:
        """Oldest first."""
        return tuple(self._rings.get(group, ()))

    def _drop(self, keep: Mapping[str, tuple[int, float]]) -> None:
        """Make room: the group with the smallest lag goes."""
        smallest = min(self._rings, key=lambda group: keep[group][0] if group in keep else -1)
        del self._rings[smallest]
