"""A stream's progress, shown to the cluster as the offsets of a consumer group.

For display only: a stream continues from Spark's checkpoint. A commit that fails is a warning in
the log and never ends a query, and no micro-batch waits for a commit: a background thread commits
the positions in order and skips those that a newer one has replaced.
"""

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from penstock.errors import Refused
from penstock.link.offsets import commit_offsets
from penstock.spark.connections import background_thread, cluster_for
from penstock.spark.planning import StreamPosition

if TYPE_CHECKING:
    from concurrent.futures import Future

logger: Final = logging.getLogger(__name__)

_WAIT_S: Final = 5.0


class ProgressGroup:
    """The consumer group of one stream; None as its name disables it."""

    def __init__(self, group: str | None, properties: Mapping[str, str]) -> None:
        self._group = group
        self._properties = properties
        self._newest: StreamPosition | None = None
        self._commit: Future[None] | None = None

    def show(self, position: StreamPosition) -> None:
        """Everything before this position is done: commit it soon."""
        if self._group is None or position == self._newest or not position.offsets:
            return
        self._newest = position
        self._commit = background_thread().submit(self._commit_newest, self._group, position)

    def wait(self) -> None:
        """Wait until the newest position is committed, at most for a few seconds."""
        if self._commit is not None:
            with suppress(TimeoutError):
                self._commit.result(_WAIT_S)

    def _commit_newest(self, group: str, position: StreamPosition) -> None:
        if position is not self._newest:
            return
        try:
            cluster_for(self._properties).run(commit_offsets(group, position.offsets))
        except (OSError, Refused) as failure:
            logger.warning("cannot commit the progress of group %s: %s", group, failure)
