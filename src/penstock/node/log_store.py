"""The broker's logs in one log folder. Implements `broker.partitions.LogStore`."""

from collections.abc import Callable, Sequence
from uuid import uuid4

from penstock.config.views import LogSettings
from penstock.log import LogFolder, PartitionLog
from penstock.model import Millis, TopicId, TopicPartition


class FolderStore:
    """Opens and deletes logs of one folder."""

    def __init__(self, folder: LogFolder, clock: Callable[[], Millis]) -> None:
        self.folder = folder
        self._clock = clock

    def open(
        self, topic_partition: TopicPartition, topic_id: TopicId, settings: LogSettings
    ) -> PartitionLog:
        """The log of that partition, made if absent, recovered if need be."""
        return self.folder.open_partition(
            topic_partition, settings, topic_id=topic_id, now=self._clock()
        )

    def delete(self, log: PartitionLog) -> None:
        """Out of sight now, off the disk later."""
        token = uuid4().hex
        self.folder.delete_partition(log.topic_partition, token=token, now=self._clock())

    def close(self, logs: Sequence[PartitionLog]) -> None:
        """Close everything in the folder, and leave the mark of a clean stop."""
        self.folder.close()
