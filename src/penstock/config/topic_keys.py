"""The keys a topic may set, with Apache Kafka's names and defaults.

A topic falls back to the broker key named as its synonym; `topic_views` makes the views.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.config.key_rows import LONG_MAX, Key, Kind, Synonym, Value, key_table
from penstock.config.resolve import Layers, Source, Values, valid_overrides
from penstock.config.views import (
    AcceptSettings,
    CompactionSettings,
    LogSettings,
    RetentionSettings,
    TimestampType,
)
from penstock.errors import ErrorCode, Refused
from penstock.model import Millis

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
    kind: Kind,
    default: Value,
    *synonyms: str | Synonym,
    doc: str,
    least: float | None = None,
    most: float | None = None,
    choices: tuple[str, ...] = (),
) -> Key:
    found = tuple(s if isinstance(s, Synonym) else Synonym(s) for s in synonyms)
    check = _CHECKS.get(name)
    return Key(
        name=name, kind=kind, default=default, doc=doc, synonyms=found,
        least=least, most=most, choices=choices, check=check,
    )  # fmt: skip


_CHECKS: Final = {
    "compression.gzip.level": _gzip_level,
    "leader.replication.throttled.replicas": _throttled,
    "follower.replication.throttled.replicas": _throttled,
    "remote.storage.enable": _no_tiering,
}

_LAYOUT: Final = (
    _key(
        "segment.bytes", Kind.INT, 1 << 30, "log.segment.bytes", least=1 << 20,
        doc="Roll to a new file at this size.",
    ),
    _key(
        "segment.ms", Kind.LONG, 7 * DAY_MS, "log.roll.ms", Synonym("log.roll.hours", HOUR_MS),
        least=1,
        doc="Roll after this time even if the file is small, so that retention and compaction can "
            "reach it.",
    ),
    _key(
        "segment.jitter.ms", Kind.LONG, 0, "log.roll.jitter.ms",
        Synonym("log.roll.jitter.hours", HOUR_MS), least=0,
        doc="Take up to this much off `segment.ms`, so that partitions do not roll together.",
    ),
    _key(
        "segment.index.bytes", Kind.INT, 10 << 20, "log.index.size.max.bytes", least=4,
        doc="Largest size of an index; a full index rolls the segment.",
    ),
    _key(
        "index.interval.bytes", Kind.INT, 4096, "log.index.interval.bytes", least=0,
        doc="One index entry for so many bytes of log.",
    ),
    _key(
        "flush.messages", Kind.LONG, LONG_MAX, "log.flush.interval.messages", least=1,
        doc="Force to disk after so many messages. Without it the operating system decides.",
    ),
    _key(
        "flush.ms", Kind.LONG, LONG_MAX, "log.flush.interval.ms", least=0,
        doc="Force to disk after this time. Without it the operating system decides.",
    ),
    _key(
        "file.delete.delay.ms", Kind.LONG, 60_000, "log.segment.delete.delay.ms", least=0,
        doc="A deleted file is only renamed for this time.",
    ),
    _key(
        "preallocate", Kind.BOOLEAN, False, "log.preallocate",
        doc="Accepted and shown; files always grow as they are written.",
    ),
)  # fmt: skip

_KEEPING: Final = (
    _key(
        "cleanup.policy", Kind.LIST, ("delete",), "log.cleanup.policy",
        choices=("compact", "delete"),
        doc="`delete` drops old segments, `compact` keeps the last value of each key; both may be "
            "set. Empty keeps everything.",
    ),
    _key(
        "retention.ms", Kind.LONG, 7 * DAY_MS, "log.retention.ms",
        Synonym("log.retention.minutes", 60_000), Synonym("log.retention.hours", HOUR_MS),
        least=-1,
        doc="Drop segments whose newest message is older. -1 keeps for ever.",
    ),
    _key(
        "retention.bytes", Kind.LONG, -1, "log.retention.bytes",
        doc="Drop the oldest segments of a partition above this size. -1 is no limit.",
    ),
    _key(
        "delete.retention.ms", Kind.LONG, DAY_MS, "log.cleaner.delete.retention.ms", least=0,
        doc="How long compaction leaves a tombstone for consumers to see.",
    ),
    _key(
        "min.cleanable.dirty.ratio", Kind.DOUBLE, 0.5, "log.cleaner.min.cleanable.ratio",
        least=0, most=1,
        doc="Compact when this share of the log is not compacted yet.",
    ),
    _key(
        "min.compaction.lag.ms", Kind.LONG, 0, "log.cleaner.min.compaction.lag.ms", least=0,
        doc="A message younger than this is not compacted away.",
    ),
    _key(
        "max.compaction.lag.ms", Kind.LONG, LONG_MAX, "log.cleaner.max.compaction.lag.ms",
        least=1,
        doc="A message older than this makes its log due for compaction, whatever the ratio.",
    ),
)  # fmt: skip

_ACCEPTING: Final = (
    _key(
        "max.message.bytes", Kind.INT, 1048588, "message.max.bytes", least=0,
        doc="Largest batch accepted, as it arrives (compressed, header included).",
    ),
    _key(
        "message.timestamp.type", Kind.STRING, "CreateTime", "log.message.timestamp.type",
        choices=("CreateTime", "LogAppendTime"),
        doc="Whose clock stamps a message: the producer's or the broker's.",
    ),
    _key(
        "message.timestamp.before.max.ms", Kind.LONG, LONG_MAX,
        "log.message.timestamp.before.max.ms", least=0,
        doc="Refuse a message whose timestamp lies further in the past.",
    ),
    _key(
        "message.timestamp.after.max.ms", Kind.LONG, HOUR_MS,
        "log.message.timestamp.after.max.ms", least=0,
        doc="Refuse a message whose timestamp lies further in the future.",
    ),
    _key(
        "compression.type", Kind.STRING, "producer", "compression.type", choices=_CODECS,
        doc="`producer` stores batches as they come; anything else is the codec batches are "
            "stored with.",
    ),
    _key(
        "compression.gzip.level", Kind.INT, -1, "compression.gzip.level",
        doc="Level when the broker compresses with gzip; -1 is the codec's own default.",
    ),
    _key(
        "compression.lz4.level", Kind.INT, 9, "compression.lz4.level", least=1, most=17,
        doc="Level when the broker compresses with lz4.",
    ),
    _key(
        "compression.zstd.level", Kind.INT, 3, "compression.zstd.level", least=-131072, most=22,
        doc="Level when the broker compresses with zstd.",
    ),
    _key(
        "min.insync.replicas", Kind.INT, 1, "min.insync.replicas", least=1,
        doc="With acks=all a write needs so many replicas in sync.",
    ),
)  # fmt: skip

_REPLICAS: Final = (
    _key(
        "unclean.leader.election.enable", Kind.BOOLEAN, False, "unclean.leader.election.enable",
        doc="A replica that is behind may lead when no other is left; acknowledged messages may "
            "be lost.",
    ),
    _key(
        "leader.replication.throttled.replicas", Kind.LIST, (),
        doc="Replicas whose leader-side copying counts against the throttle: `*` or "
            "`partition:broker` pairs.",
    ),
    _key(
        "follower.replication.throttled.replicas", Kind.LIST, (),
        doc="Replicas whose follower-side copying counts against the throttle: `*` or "
            "`partition:broker` pairs.",
    ),
)  # fmt: skip

_TIERING: Final = (
    _key(
        "remote.storage.enable", Kind.BOOLEAN, False,
        doc="Tiered storage; `true` is refused, as on a Kafka broker without it.",
    ),
    _key(
        "remote.log.copy.disable", Kind.BOOLEAN, False,
        doc="Accepted and shown; has no effect without tiered storage.",
    ),
    _key(
        "remote.log.delete.on.disable", Kind.BOOLEAN, False,
        doc="Accepted and shown; has no effect without tiered storage.",
    ),
    _key(
        "local.retention.ms", Kind.LONG, -2, "log.local.retention.ms", least=-2,
        doc="Accepted and shown; has no effect without tiered storage.",
    ),
    _key(
        "local.retention.bytes", Kind.LONG, -2, "log.local.retention.bytes", least=-2,
        doc="Accepted and shown; has no effect without tiered storage.",
    ),
)  # fmt: skip

TOPIC_KEYS: Final = key_table(*_LAYOUT, *_KEEPING, *_ACCEPTING, *_REPLICAS, *_TIERING)


class TopicViews(NamedTuple):
    """One topic's settings, as each room wants them."""

    log: LogSettings
    accept: AcceptSettings
    retention: RetentionSettings
    compaction: CompactionSettings


def check_topic_overrides(overrides: Mapping[str, str], layers: Layers) -> None:
    """Refuse overrides that no topic can have: unknown names, bad values, contradictions."""
    valid_overrides(TOPIC_KEYS, overrides, "topic")
    values = Values(TOPIC_KEYS, overrides, Source.TOPIC, layers)
    least, most = values.whole("min.compaction.lag.ms"), values.whole("max.compaction.lag.ms")
    if least > most:
        raise Refused(
            ErrorCode.invalid_config,
            f"min.compaction.lag.ms ({least}) is above max.compaction.lag.ms ({most})",
        )


def topic_views(
    overrides: Mapping[str, str], layers: Layers, *, producer_id_expiration_ms: Millis
) -> TopicViews:
    """The views of a topic with these overrides. They were checked before they were stored."""
    values = Values(TOPIC_KEYS, overrides, Source.TOPIC, layers)
    policy = values.names("cleanup.policy")
    return TopicViews(
        log=_log_settings(values, producer_id_expiration_ms, compact="compact" in policy),
        accept=_accept_settings(values, compact="compact" in policy),
        retention=RetentionSettings(
            delete="delete" in policy,
            retention_ms=values.limit_ms("retention.ms"),
            retention_bytes=values.limit("retention.bytes"),
        ),
        compaction=CompactionSettings(
            compact="compact" in policy,
            min_cleanable_dirty_ratio=values.fraction("min.cleanable.dirty.ratio"),
            min_compaction_lag_ms=values.millis("min.compaction.lag.ms"),
            max_compaction_lag_ms=values.limit_ms("max.compaction.lag.ms"),
            delete_retention_ms=values.millis("delete.retention.ms"),
        ),
    )


def _log_settings(
    values: Values, producer_id_expiration_ms: Millis, *, compact: bool
) -> LogSettings:
    segment_ms = values.millis("segment.ms")
    max_lag_ms = values.limit_ms("max.compaction.lag.ms")
    if compact and max_lag_ms is not None:
        segment_ms = min(segment_ms, max_lag_ms)  # an active segment is never compacted
    return LogSettings(
        segment_bytes=values.whole("segment.bytes"),
        segment_ms=segment_ms,
        segment_jitter_ms=values.millis("segment.jitter.ms"),
        segment_index_bytes=values.whole("segment.index.bytes"),
        index_interval_bytes=values.whole("index.interval.bytes"),
        max_message_bytes=values.whole("max.message.bytes"),
        flush_messages=values.limit("flush.messages"),
        flush_ms=values.limit_ms("flush.ms"),
        file_delete_delay_ms=values.millis("file.delete.delay.ms"),
        producer_id_expiration_ms=producer_id_expiration_ms,
    )


def _accept_settings(values: Values, *, compact: bool) -> AcceptSettings:
    compression = values.text("compression.type")
    has_level = compression in ("gzip", "lz4", "zstd")
    level = values.whole(f"compression.{compression}.level") if has_level else None
    return AcceptSettings(
        max_message_bytes=values.whole("max.message.bytes"),
        timestamp_type=TimestampType(values.text("message.timestamp.type")),
        timestamp_before_max_ms=values.limit_ms("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=values.millis("message.timestamp.after.max.ms"),
        compression=compression,
        compression_level=None if compression == "gzip" and level == -1 else level,
        min_insync_replicas=values.whole("min.insync.replicas"),
        keys_required=compact,
    )
