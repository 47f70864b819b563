"""The keys that a topic may set, with Apache Kafka's names and defaults.

A topic falls back to the broker key that its row names as synonym.
"""

import re
from collections.abc import Mapping
from typing import Final

from penstock.config.key_rows import LONG_MAX, Key, Synonym, Value, ValueType, key_table
from penstock.config.resolve import ConfigSource, Layers, Values, check_overrides
from penstock.errors import ErrorCode, Refused

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
_CODECS: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_THROTTLED = re.compile(r"\*|(\d+:\d+(,\d+:\d+)*)?")


def _gzip_level(value: Value) -> str | None:
    if value == -1 or (isinstance(value, int) and 1 <= value <= 9):
        return None
    return "Value must be between 1 and 9 or equal to -1"


def _throttled(value: Value) -> str | None:
    assert isinstance(value, tuple)
    if _THROTTLED.fullmatch(",".join(value)):
        return None
    return "must be * or a list of <partition>:<broker>,<partition>:<broker>"


def _no_tiering(value: Value) -> str | None:
    if value is True:
        return "this broker has no tiered storage, so a topic cannot use it"
    return None


def _key(
    name: str,
    value_type: ValueType,
    default: Value,
    *synonyms: str | Synonym,
    doc: str,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
) -> Key:
    return Key(
        name=name, value_type=value_type, default=default, doc=doc,
        synonyms=tuple(s if isinstance(s, Synonym) else Synonym(s) for s in synonyms),
        minimum=minimum, maximum=maximum, choices=choices, check=_CHECKS.get(name),
    )  # fmt: skip


_CHECKS: Final = {
    "compression.gzip.level": _gzip_level,
    "leader.replication.throttled.replicas": _throttled,
    "follower.replication.throttled.replicas": _throttled,
    "remote.storage.enable": _no_tiering,
}

_LAYOUT: Final = (
    _key(
        "segment.bytes", ValueType.INT, 1 << 30, "log.segment.bytes", minimum=1 << 20,
        doc="Roll to a new segment at this size.",
    ),
    _key(
        "segment.ms", ValueType.LONG, 7 * DAY_MS, "log.roll.ms", Synonym("log.roll.hours", HOUR_MS),
        minimum=1,
        doc="Roll to a new segment after this time even if the segment is small, so that retention "
            "and compaction apply to it.",
    ),
    _key(
        "segment.jitter.ms", ValueType.LONG, 0, "log.roll.jitter.ms",
        Synonym("log.roll.jitter.hours", HOUR_MS), minimum=0,
        doc="Subtract up to this much from `segment.ms`, so that partitions do not roll together.",
    ),
    _key(
        "segment.index.bytes", ValueType.INT, 10 << 20, "log.index.size.max.bytes", minimum=4,
        doc="Largest size of an index; a full index rolls the segment.",
    ),
    _key(
        "index.interval.bytes", ValueType.INT, 4096, "log.index.interval.bytes", minimum=0,
        doc="Add an index entry after this many bytes of log.",
    ),
    _key(
        "flush.messages", ValueType.LONG, LONG_MAX, "log.flush.interval.messages", minimum=1,
        doc="Force to disk after this many messages. By default the operating system decides.",
    ),
    _key(
        "flush.ms", ValueType.LONG, LONG_MAX, "log.flush.interval.ms", minimum=0,
        doc="Force to disk after this time. By default the operating system decides.",
    ),
    _key(
        "file.delete.delay.ms", ValueType.LONG, 60_000, "log.segment.delete.delay.ms", minimum=0,
        doc="Delay between renaming a deleted file and removing it.",
    ),
    _key(
        "preallocate", ValueType.BOOLEAN, False, "log.preallocate",
        doc="Accepted and shown; files always grow as they are written.",
    ),
)  # fmt: skip

_RETENTION: Final = (
    _key(
        "cleanup.policy", ValueType.LIST, ("delete",), "log.cleanup.policy",
        choices=("compact", "delete"),
        doc="`delete` deletes old segments, `compact` keeps the last value of each key; both may "
            "be set. Empty keeps everything.",
    ),
    _key(
        "retention.ms", ValueType.LONG, 7 * DAY_MS, "log.retention.ms",
        Synonym("log.retention.minutes", 60_000), Synonym("log.retention.hours", HOUR_MS),
        minimum=-1,
        doc="Delete segments whose newest message is older. -1 is no limit.",
    ),
    _key(
        "retention.bytes", ValueType.LONG, -1, "log.retention.bytes",
        doc="Delete the oldest segments of a partition above this size. -1 is no limit.",
    ),
    _key(
        "delete.retention.ms", ValueType.LONG, DAY_MS, "log.cleaner.delete.retention.ms", minimum=0,
        doc="How long compaction keeps a tombstone, so that consumers see it.",
    ),
    _key(
        "min.cleanable.dirty.ratio", ValueType.DOUBLE, 0.5, "log.cleaner.min.cleanable.ratio",
        minimum=0, maximum=1,
        doc="Compact when this share of the log has not been compacted yet.",
    ),
    _key(
        "min.compaction.lag.ms", ValueType.LONG, 0, "log.cleaner.min.compaction.lag.ms", minimum=0,
        doc="Minimum time that a message stays uncompacted.",
    ),
    _key(
        "max.compaction.lag.ms", ValueType.LONG, LONG_MAX, "log.cleaner.max.compaction.lag.ms",
        minimum=1,
        doc="Maximum time that a message stays uncompacted, whatever the ratio.",
    ),
)  # fmt: skip

_ADMISSION: Final = (
    _key(
        "max.message.bytes", ValueType.INT, 1048588, "message.max.bytes", minimum=0,
        doc="Largest batch accepted, as received (compressed, header included).",
    ),
    _key(
        "message.timestamp.type", ValueType.STRING, "CreateTime", "log.message.timestamp.type",
        choices=("CreateTime", "LogAppendTime"),
        doc="Timestamps are the producer's (`CreateTime`) or the broker's (`LogAppendTime`).",
    ),
    _key(
        "message.timestamp.before.max.ms", ValueType.LONG, LONG_MAX,
        "log.message.timestamp.before.max.ms", minimum=0,
        doc="Refuse a message whose timestamp is further in the past.",
    ),
    _key(
        "message.timestamp.after.max.ms", ValueType.LONG, HOUR_MS,
        "log.message.timestamp.after.max.ms", minimum=0,
        doc="Refuse a message whose timestamp is further in the future.",
    ),
    _key(
        "compression.type", ValueType.STRING, "producer", "compression.type", choices=_CODECS,
        doc="`producer` stores batches as received; any other value is the codec that batches "
            "are stored with.",
    ),
    _key(
        "compression.gzip.level", ValueType.INT, -1, "compression.gzip.level",
        doc="Level when the broker compresses with gzip; -1 is the codec's own default.",
    ),
    _key(
        "compression.lz4.level", ValueType.INT, 9, "compression.lz4.level", minimum=1, maximum=17,
        doc="Level when the broker compresses with lz4.",
    ),
    _key(
        "compression.zstd.level", ValueType.INT, 3, "compression.zstd.level",
        minimum=-131072, maximum=22,
        doc="Level when the broker compresses with zstd.",
    ),
    _key(
        "min.insync.replicas", ValueType.INT, 1, "min.insync.replicas", minimum=1,
        doc="In-sync replicas required for a write with acks=all.",
    ),
)  # fmt: skip

_REPLICAS: Final = (
    _key(
        "unclean.leader.election.enable", ValueType.BOOLEAN, False,
        "unclean.leader.election.enable",
        doc="Allow a replica that is not in sync to become leader when no other is left; "
            "acknowledged messages may be lost.",
    ),
    _key(
        "leader.replication.throttled.replicas", ValueType.LIST, (),
        doc="Replicas that the throttle applies to on the leader: `*` or "
            "`partition:broker` pairs.",
    ),
    _key(
        "follower.replication.throttled.replicas", ValueType.LIST, (),
        doc="Replicas that the throttle applies to on the follower: `*` or "
            "`partition:broker` pairs.",
    ),
)  # fmt: skip

_TIERING: Final = (
    _key(
        "remote.storage.enable", ValueType.BOOLEAN, False,
        doc="Tiered storage is not supported: `true` is refused.",
    ),
    _key(
        "remote.log.copy.disable", ValueType.BOOLEAN, False,
        doc="Accepted and shown; has no effect without tiered storage.",
    ),
    _key(
        "remote.log.delete.on.disable", ValueType.BOOLEAN, False,
        doc="Accepted and shown; has no effect without tiered storage.",
    ),
    _key(
        "local.retention.ms", ValueType.LONG, -2, "log.local.retention.ms", minimum=-2,
        doc="Accepted and shown; has no effect without tiered storage.",
    ),
    _key(
        "local.retention.bytes", ValueType.LONG, -2, "log.local.retention.bytes", minimum=-2,
        doc="Accepted and shown; has no effect without tiered storage.",
    ),
)  # fmt: skip

TOPIC_KEYS: Final = key_table(*_LAYOUT, *_RETENTION, *_ADMISSION, *_REPLICAS, *_TIERING)


def topic_values(overrides: Mapping[str, str], layers: Layers) -> Values:
    """A topic's effective settings."""
    return Values(TOPIC_KEYS, overrides, ConfigSource.TOPIC, layers)


def check_topic_overrides(overrides: Mapping[str, str], layers: Layers) -> None:
    """Refuse unknown names, invalid values and contradictions."""
    check_overrides(TOPIC_KEYS, overrides, "topic")
    values = topic_values(overrides, layers)
    lag_min_ms = values.integer("min.compaction.lag.ms")
    lag_max_ms = values.integer("max.compaction.lag.ms")
    if lag_min_ms > lag_max_ms:
        raise Refused(
            ErrorCode.invalid_config,
            f"min.compaction.lag.ms ({lag_min_ms}) is above max.compaction.lag.ms ({lag_max_ms})",
        )
