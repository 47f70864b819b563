"""Which value counts, and how overrides change."""

import pytest

from penstock.config.broker_keys import (
    BROKER_KEYS,
    broker_values,
    check_broker_overrides,
    check_group_overrides,
)
from penstock.config.resolve import (
    NO_LAYERS,
    ChangeKind,
    ConfigChange,
    Layers,
    Setting,
    Source,
    chain,
    changed,
    current,
)
from penstock.config.topic_keys import TOPIC_KEYS, check_topic_overrides, topic_views
from penstock.config.views import (
    AcceptSettings,
    CompactionSettings,
    LogSettings,
    RetentionSettings,
    TimestampType,
)
from penstock.errors import ErrorCode, Refused
from penstock.model import Millis

DAY = Millis(86_400_000)


def test_without_any_setting_the_views_have_their_defaults() -> None:
    views = topic_views({}, NO_LAYERS, producer_id_expiration_ms=DAY)
    assert views == (LogSettings(), AcceptSettings(), RetentionSettings(), CompactionSettings())


def test_kafkas_ways_to_say_without_limit_are_none() -> None:
    overrides = {"retention.ms": "-1", "retention.bytes": "-1", "flush.ms": "9223372036854775807"}
    views = topic_views(overrides, NO_LAYERS, producer_id_expiration_ms=DAY)
    assert views.retention == RetentionSettings(retention_ms=None, retention_bytes=None)
    assert views.log.flush_ms is None


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
    views = topic_views(overrides, NO_LAYERS, producer_id_expiration_ms=DAY)
    assert views.log.segment_bytes == 2097152
    assert views.log.max_message_bytes == views.accept.max_message_bytes == 1000
    assert views.retention == RetentionSettings(retention_bytes=5)
    assert views.compaction == CompactionSettings(compact=True, max_compaction_lag_ms=Millis(7))
    assert views.accept.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (views.accept.compression, views.accept.compression_level) == ("zstd", 11)
    assert views.accept.keys_required


def test_a_compacted_topic_rolls_in_time_for_its_longest_compaction_lag() -> None:
    lag = {"max.compaction.lag.ms": "1000"}
    compact = {"cleanup.policy": "compact", **lag}
    assert topic_views(compact, NO_LAYERS, producer_id_expiration_ms=DAY).log.segment_ms == 1000
    assert topic_views(lag, NO_LAYERS, producer_id_expiration_ms=DAY).log.segment_ms == 7 * DAY


def test_the_topic_wins_over_the_broker_over_all_brokers_over_the_start() -> None:
    key = TOPIC_KEYS["segment.bytes"]
    layers = Layers(
        {"log.segment.bytes": "3000000"},
        {"log.segment.bytes": "4000000"},
        {"log.segment.bytes": "5000000"},
    )
    own = {"segment.bytes": "2000000"}
    assert chain(key, own, Source.TOPIC, layers) == [
        Setting("segment.bytes", "2000000", Source.TOPIC),
        Setting("log.segment.bytes", "3000000", Source.BROKER),
        Setting("log.segment.bytes", "4000000", Source.BROKER_DEFAULT),
        Setting("log.segment.bytes", "5000000", Source.STATIC_BROKER),
        Setting("log.segment.bytes", "1073741824", Source.DEFAULT),
    ]
    assert current(key, {}, Source.TOPIC, layers).value == "3000000"


@pytest.mark.parametrize(
    ("static", "expected_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, None),
    ],
)
def test_the_finest_synonym_wins_in_its_own_unit(
    static: dict[str, str], expected_ms: int | None
) -> None:
    layers = Layers({}, {}, static)
    views = topic_views({}, layers, producer_id_expiration_ms=DAY)
    assert views.retention.retention_ms == expected_ms


def test_a_brokers_own_settings_are_read_from_its_layers() -> None:
    values = broker_values(Layers({}, {}, {"num.partitions": "7"}))
    assert values.whole("num.partitions") == 7
    assert values.whole("default.replication.factor") == 1
    assert values.flag("auto.create.topics.enable")


def test_topic_overrides_that_contradict_each_other_are_refused() -> None:
    overrides = {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}
    with pytest.raises(Refused, match=r"min\.compaction\.lag\.ms"):
        check_topic_overrides(overrides, NO_LAYERS)


def test_an_unknown_topic_key_is_refused() -> None:
    with pytest.raises(Refused, match="Unknown topic config name: nope"):
        check_topic_overrides({"nope": "1"}, NO_LAYERS)


def test_a_group_stays_within_the_brokers_bounds() -> None:
    check_group_overrides({"consumer.session.timeout.ms": "50000"}, NO_LAYERS)
    with pytest.raises(Refused, match=r"group\.consumer\.min\.session\.timeout\.ms"):
        check_group_overrides({"consumer.session.timeout.ms": "5"}, NO_LAYERS)
    wider = Layers({}, {}, {"group.consumer.min.session.timeout.ms": "1"})
    check_group_overrides({"consumer.session.timeout.ms": "5"}, wider)


def test_a_key_that_needs_a_restart_cannot_be_changed_while_running() -> None:
    check_broker_overrides({"log.retention.ms": "5"}, ["log.retention.ms"])
    with pytest.raises(Refused) as refused:
        check_broker_overrides({"num.partitions": "5"}, ["num.partitions"])
    assert refused.value.code is ErrorCode.invalid_request


def _after(*changes: tuple[str, ChangeKind, str | None], now: dict[str, str]) -> dict[str, str]:
    rows = tuple(ConfigChange(*change) for change in changes)
    return changed(TOPIC_KEYS, now, rows, scope="topic", inherited=NO_LAYERS)


def test_lists_are_added_to_and_subtracted_from_starting_at_the_value_that_counts() -> None:
    append = ("cleanup.policy", ChangeKind.APPEND, "compact")
    subtract = ("cleanup.policy", ChangeKind.SUBTRACT, "delete")
    appended = _after(append, now={})
    assert appended == {"cleanup.policy": "delete,compact"}
    assert _after(append, now=appended) == appended
    assert _after(subtract, now=appended) == {"cleanup.policy": "compact"}


def test_what_is_deleted_falls_back_and_may_be_unknown() -> None:
    now = {"retention.ms": "5"}
    assert _after(("retention.ms", ChangeKind.DELETE, None), now=now) == {}
    assert _after(("nope", ChangeKind.DELETE, None), now=now) == now


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("retention.ms", ChangeKind.APPEND, "1"), ErrorCode.invalid_config),
        (("retention.ms", ChangeKind.SET, None), ErrorCode.invalid_request),
        (("nope", ChangeKind.SET, "1"), ErrorCode.invalid_config),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(
    change: tuple[str, ChangeKind, str | None], code: ErrorCode
) -> None:
    with pytest.raises(Refused) as refused:
        _after(change, now={})
    assert refused.value.code is code


def test_broker_keys_for_hours_and_minutes_carry_their_own_unit() -> None:
    assert BROKER_KEYS["log.retention.hours"].default == 168
    assert BROKER_KEYS["log.retention.minutes"].default is None
    assert BROKER_KEYS["log.retention.ms"].default is None
