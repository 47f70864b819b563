"""Leaders whose connection to this broker has just ended: probably dead, and soon fenced.

Clients that request metadata meanwhile learn that there is no leader, and retry after a moment.
With the dead leader in the response, some would wait a second or more before they retry.
A suspicion ends after two sessions of a broker: one that is not fenced by then is only out of
reach from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Set

    from penstock.model import Millis, NodeId


class SuspectedLeaders:
    """By broker, when the connection ended."""

    def __init__(self, clock: Callable[[], Millis], limit_ms: Millis) -> None:
        self._clock = clock
        self._limit_ms = limit_ms
        self._lost_at: dict[NodeId, Millis] = {}

    def on_lost(self, leader: NodeId) -> None:
        """A connection to it ended, or could not be made."""
        self._lost_at.setdefault(leader, self._clock())

    def on_response(self, leader: NodeId) -> None:
        """It is alive."""
        if self._lost_at:
            self._lost_at.pop(leader, None)

    def current(self) -> Set[NodeId]:
        """Those that are suspected now."""
        if not self._lost_at:
            return frozenset()
        since = self._clock() - self._limit_ms
        return {leader for leader, lost_at in self._lost_at.items() if lost_at > since}
