"""A stream's place, shown to the cluster as the offsets of a consumer group.

Only shown: Spark's checkpoint is what a stream goes on from. So a cluster that refuses the commit
is a line in the log, never the end of a query, and no micro-batch waits for it: a thread with
connections of its own commits one position after another, and leaves out those that a later one has
overtaken.
"""

import logging
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Final

from penstock.errors import Refused
from penstock.link.offsets import commit_offsets
from penstock.spark.connecting import cluster_apart
from penstock.spark.planning import Position

logger = logging.getLogger(__name__)

_SETTLE_S: Final = 5.0  # waited for by who has nothing else to do


class Progress:
    """The group of one stream."""

    def __init__(self, group: str | None, properties: Mapping[str, str]) -> None:
        self._group = group
        self._properties = properties
        self._told: Position | None = None
        self._last: Future[None] | None = None

    def show(self, position: Position) -> None:
        """Everything before this position has been dealt with: commit that, soon."""
        if self._group is None or position == self._told or not position.offsets:
            return
        self._told = position
        self._last = _thread().submit(self._commit, self._group, position)

    def settle(self) -> None:
        """Wait, within reason, until what was told is shown."""
        if self._last is not None:
            with suppress(TimeoutError):
                self._last.result(_SETTLE_S)

    def _commit(self, group: str, position: Position) -> None:
        if position is not self._told:
            return
        try:
            cluster_apart(self._properties).run(commit_offsets(group, position.offsets))
        except (OSError, Refused) as failure:
            logger.warning("progress is not shown as group %s: %s", group, failure)


@cache
def _thread() -> ThreadPoolExecutor:
    """One for the process: it alone uses its connections."""
    return ThreadPoolExecutor(1, thread_name_prefix="progress")
