"""Which value applies, and how overrides change."""

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
    ConfigSource,
    Layers,
    Setting,
    apply_changes,
    effective_setting,
    settings_by_precedence,
)
from penstock.config.topic_keys import TOPIC_KEYS, check_topic_overrides, topic_values
from penstock.errors import ErrorCode, Refused


def test_the_topic_wins_over_the_broker_over_all_brokers_over_the_start() -> None:
    key = TOPIC_KEYS["segment.bytes"]
    layers = Layers(
        {"log.segment.bytes": "3000000"},
        {"log.segment.bytes": "4000000"},
        {"log.segment.bytes": "5000000"},
    )
    own = {"segment.bytes": "2000000"}
    assert settings_by_precedence(key, own, ConfigSource.TOPIC, layers) == [
        Setting("segment.bytes", "2000000", ConfigSource.TOPIC),
        Setting("log.segment.bytes", "3000000", ConfigSource.BROKER),
        Setting("log.segment.bytes", "4000000", ConfigSource.BROKER_DEFAULT),
        Setting("log.segment.bytes", "5000000", ConfigSource.STATIC_BROKER),
        Setting("log.segment.bytes", "1073741824", ConfigSource.DEFAULT),
    ]
    assert effective_setting(key, {}, ConfigSource.TOPIC, layers).value == "3000000"


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
    assert topic_values({}, layers).limit("retention.ms") == expected_ms


def test_a_brokers_settings_are_read_from_its_layers() -> None:
    values = broker_values(Layers({}, {}, {"num.partitions": "7"}))
    assert values.integer("num.partitions") == 7
    assert values.integer("default.replication.factor") == 1
    assert values["auto.create.topics.enable"] is True


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
    check_broker_overrides({"log.retention.ms": "5"}, ["log.retention.ms"], for_all=False)
    with pytest.raises(Refused) as refused:
        check_broker_overrides({"num.partitions": "5"}, ["num.partitions"], for_all=False)
    assert refused.value.code is ErrorCode.invalid_request


def _after(*changes: tuple[str, ChangeKind, str | None], now: dict[str, str]) -> dict[str, str]:
    rows = tuple(ConfigChange(*change) for change in changes)
    return apply_changes(TOPIC_KEYS, now, rows, scope="topic", inherited=NO_LAYERS)


def test_lists_are_added_to_and_subtracted_from_starting_from_the_effective_value() -> None:
    append = ("cleanup.policy", ChangeKind.APPEND, "compact")
    subtract = ("cleanup.policy", ChangeKind.SUBTRACT, "delete")
    appended = _after(append, now={})
    assert appended == {"cleanup.policy": "delete,compact"}
    assert _after(append, now=appended) == appended
    assert _after(subtract, now=appended) == {"cleanup.policy": "compact"}


def test_a_deleted_override_falls_back_and_may_be_unknown() -> None:
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
def test_an_impossible_change_is_refused(
    change: tuple[str, ChangeKind, str | None], code: ErrorCode
) -> None:
    with pytest.raises(Refused) as refused:
        _after(change, now={})
    assert refused.value.code is code


def test_broker_keys_for_hours_and_minutes_have_their_own_unit() -> None:
    assert BROKER_KEYS["log.retention.hours"].default == 168
    assert BROKER_KEYS["log.retention.minutes"].default is None
    assert BROKER_KEYS["log.retention.ms"].default is None
