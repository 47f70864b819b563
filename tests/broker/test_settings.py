"""A topic's settings, as each package sees them."""

from penstock.broker.settings import TimestampType, topic_settings
from penstock.config.resolve import NO_LAYERS, Layers

DAY_MS = 86_400_000


def test_without_overrides_a_topic_has_kafkas_defaults() -> None:
    topic = topic_settings({}, NO_LAYERS)
    assert (topic.log.segment_bytes, topic.log.segment_ms) == (1 << 30, 7 * DAY_MS)
    assert topic.log.producer_id_expiration_ms == DAY_MS
    assert (topic.admission.compression, topic.admission.compression_level) == ("producer", None)
    assert topic.retention.delete
    assert not topic.compaction.compact


def test_both_of_kafkas_ways_to_write_unlimited_are_none() -> None:
    overrides = {"retention.ms": "-1", "retention.bytes": "-1", "flush.ms": "9223372036854775807"}
    topic = topic_settings(overrides, NO_LAYERS)
    assert (topic.retention.retention_ms, topic.retention.retention_bytes) == (None, None)
    assert topic.log.flush_ms is None


def test_overrides_reach_every_view() -> None:
    overrides = {
        "cleanup.policy": "compact,delete",
        "segment.bytes": "2097152",
        "retention.bytes": "5",
        "max.compaction.lag.ms": "7",
        "message.timestamp.type": "LogAppendTime",
        "compression.type": "zstd",
        "compression.zstd.level": "11",
        "max.message.bytes": "1000",
    }
    topic = topic_settings(overrides, NO_LAYERS)
    assert topic.log.segment_bytes == 2097152
    assert topic.log.max_message_bytes == topic.admission.max_message_bytes == 1000
    assert (topic.retention.delete, topic.retention.retention_bytes) == (True, 5)
    assert (topic.compaction.compact, topic.compaction.max_compaction_lag_ms) == (True, 7)
    assert topic.admission.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (topic.admission.compression, topic.admission.compression_level) == ("zstd", 11)
    assert topic.admission.keys_required


def test_the_default_level_of_gzip_is_the_codecs_own() -> None:
    assert (
        topic_settings({"compression.type": "gzip"}, NO_LAYERS).admission.compression_level is None
    )


def test_a_compacted_topic_rolls_within_its_longest_compaction_lag() -> None:
    lag = {"max.compaction.lag.ms": "1000"}
    compact = {"cleanup.policy": "compact", **lag}
    assert topic_settings(compact, NO_LAYERS).log.segment_ms == 1000
    assert topic_settings(lag, NO_LAYERS).log.segment_ms == 7 * DAY_MS


def test_a_topic_falls_back_to_its_broker() -> None:
    layers = Layers({}, {}, {"log.retention.hours": "2", "producer.id.expiration.ms": "9"})
    topic = topic_settings({}, layers)
    assert (topic.retention.retention_ms, topic.log.producer_id_expiration_ms) == (7_200_000, 9)
