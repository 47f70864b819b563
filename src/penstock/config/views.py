"""What each room needs to know and nothing else: frozen, built from the rows, replaced whole."""

from dataclasses import dataclass
from enum import Enum

from penstock.model import Millis


class TimestampType(Enum):
    """Whose clock stamps a record: the producer's or the broker's."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How one partition is laid out on disk. The defaults are Apache Kafka's."""

    segment_bytes: int = 1 << 30
    segment_ms: Millis = Millis(7 * 24 * 3600 * 1000)
    segment_jitter_ms: Millis = Millis(0)
    segment_index_bytes: int = 10 << 20  # an index that is full rolls the segment
    index_interval_bytes: int = 4096  # one index entry per so many bytes of log
    max_message_bytes: int = 1048588  # of a batch, compressed, header included
    flush_messages: int | None = None  # None leaves it to the operating system
    flush_ms: Millis | None = None
    file_delete_delay_ms: Millis = Millis(60_000)  # a deleted file is only renamed for so long
    producer_id_expiration_ms: Millis = Millis(24 * 3600 * 1000)


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """When a closed segment may go. None keeps for ever."""

    delete: bool = True  # cleanup.policy contains "delete"
    retention_ms: Millis | None = Millis(7 * 24 * 3600 * 1000)
    retention_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """What compaction keeps and for how long."""

    compact: bool = False  # cleanup.policy contains "compact"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: Millis = Millis(0)
    max_compaction_lag_ms: Millis | None = None
    delete_retention_ms: Millis = Millis(24 * 3600 * 1000)  # tombstones and markers stay so long


@dataclass(frozen=True, slots=True)
class AcceptSettings:
    """What a produced batch must satisfy."""

    max_message_bytes: int = 1048588
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: Millis | None = None  # None: any past
    timestamp_after_max_ms: Millis = Millis(3600 * 1000)
    compression: str = "producer"  # producer | uncompressed | gzip | snappy | lz4 | zstd
    compression_level: int | None = None
    min_insync_replicas: int = 1
    keys_required: bool = False  # the topic is compacted
