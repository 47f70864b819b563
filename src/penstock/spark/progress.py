"""A stream's place, shown to the cluster as the offsets of a consumer group.

Only shown: Spark's checkpoint is what a stream goes on from. So a cluster that refuses the commit
is a line in the log, never the end of a query.
"""

import logging

from penstock.errors import Refused
from penstock.link.blocking import Cluster
from penstock.link.offsets import commit_offsets
from penstock.spark.planning import Position

logger = logging.getLogger(__name__)


class Progress:
    """The group of one stream."""

    def __init__(self, group: str | None) -> None:
        self._group = group
        self._shown: Position | None = None

    def show(self, cluster: Cluster, position: Position) -> None:
        """Everything before this position has been dealt with."""
        if self._group is None or position == self._shown or not position.offsets:
            return
        try:
            cluster.run(commit_offsets(self._group, position.offsets))
        except (OSError, Refused) as failure:
            logger.warning("progress is not shown as group %s: %s", self._group, failure)
        self._shown = position
