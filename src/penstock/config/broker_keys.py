"""The keys of a broker and of a group, with Apache Kafka's names and defaults.

A broker key that is only the default of a topic or group key is made from the row of that key.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from penstock.config.key_rows import (
    INT_MAX,
    LONG_MAX,
    Key,
    Synonym,
    UpdateMode,
    Value,
    ValueType,
    key_table,
)
from penstock.config.resolve import ConfigSource, Layers, Values, check_overrides
from penstock.config.topic_keys import DAY_MS, HOUR_MS, TOPIC_KEYS
from penstock.errors import ErrorCode, Refused

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
OFFSETS_MONOTONIC: Final = "penstock.offsets.monotonic"

MIN_INSYNC: Final = "min.insync.replicas"
REPLICATION_FACTOR: Final = "default.replication.factor"

# For a new cluster with this many voters: the loss of one broker costs nothing.
CLUSTER_VOTERS_MIN: Final = 3
CLUSTER_DEFAULTS: Final = {REPLICATION_FACTOR: "3", MIN_INSYNC: "2"}

GROUP_KEYS: Final = key_table(
    Key(
        name=SESSION_TIMEOUT, value_type=ValueType.INT, default=45_000, minimum=1,
        synonyms=(Synonym("group.consumer.session.timeout.ms"),),
        doc="A member of a consumer group without a heartbeat for this time is removed from "
            "the group.",
    ),
    Key(
        name=HEARTBEAT_INTERVAL, value_type=ValueType.INT, default=5000, minimum=1,
        synonyms=(Synonym("group.consumer.heartbeat.interval.ms"),),
        doc="How often a member of a consumer group sends a heartbeat.",
    ),
    Key(
        name=OFFSETS_MONOTONIC, value_type=ValueType.BOOLEAN, default=False,
        doc="Refuse to commit an offset below the committed one; going back requires a reset.",
    ),
)  # fmt: skip


def group_values(overrides: Mapping[str, str], layers: Layers) -> Values:
    """A group's effective settings."""
    return Values(GROUP_KEYS, overrides, ConfigSource.GROUP, layers)


def _key(
    name: str,
    value_type: ValueType,
    default: Value,
    *,
    doc: str,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    update_mode: UpdateMode = UpdateMode.READ_ONLY,
    sensitive: bool = False,
) -> Key:
    return Key(
        name=name, value_type=value_type, default=default, doc=doc,
        minimum=minimum, maximum=maximum,
        choices=choices, update_mode=update_mode, sensitive=sensitive,
    )  # fmt: skip


def _inherited(keys: Iterable[Key]) -> list[Key]:
    """A broker key for each synonym of a topic or group key: the default for all of them.

    Where a key has several synonyms, only the coarsest has the default, as in Kafka: the finer
    ones apply when they are set.
    """
    rows = []
    for key in keys:
        for synonym in key.synonyms:
            is_last = synonym == key.synonyms[-1]
            is_scaled = synonym.factor > 1
            default = key.default if is_last and key.name != "flush.ms" else None
            if isinstance(default, int) and is_scaled:
                default //= synonym.factor
            rows.append(
                replace(
                    key,
                    name=str(synonym),
                    value_type=ValueType.INT if is_scaled else key.value_type,
                    default=default,
                    doc=f"The default of `{key.name}`.",
                    synonyms=(),
                    update_mode=_update_mode(synonym),
                )
            )
    return rows


def _update_mode(synonym: Synonym) -> UpdateMode:
    """Leaders and controller must agree on how many replicas commit a record."""
    if synonym == MIN_INSYNC:
        return UpdateMode.CLUSTER_WIDE
    return UpdateMode.READ_ONLY if synonym.factor > 1 else UpdateMode.PER_BROKER


_IDENTITY: Final = (
    _key("node.id", ValueType.INT, 1, minimum=0, doc="The broker's id in the cluster."),
    _key("broker.id", ValueType.INT, 1, minimum=-1, doc="The older name of `node.id`."),
    _key("broker.rack", ValueType.STRING, None, doc="The broker's rack, shown to clients."),
    _key(
        "listeners",
        ValueType.LIST,
        ("PLAINTEXT://127.0.0.1:9092",),
        doc="The address that the broker listens on.",
    ),
    _key("advertised.listeners", ValueType.LIST, None, doc="The address that clients are given."),
    _key("log.dirs", ValueType.LIST, None, doc="The log directory."),
    _key(
        "penstock.metrics.listener",
        ValueType.STRING,
        None,
        doc="Where the broker serves its metrics. Shown, never set: use `--metrics-port`.",
    ),
)

_NETWORK: Final = (
    _key(
        "socket.request.max.bytes", ValueType.INT, 100 << 20, minimum=1,
        doc="Maximum size of a request; a larger one closes its connection.",
    ),
    _key(
        "max.connections", ValueType.INT, 4000, minimum=0,
        doc="Maximum number of connections; further ones are closed.",
    ),
    _key(
        "max.connections.per.ip", ValueType.INT, 4000, minimum=0,
        doc="Maximum number of connections from one address; further ones are closed.",
    ),
    _key(
        "connections.max.idle.ms", ValueType.LONG, 600_000, minimum=1,
        doc="Close a connection without a request for this time.",
    ),
    _key(
        "socket.listen.backlog.size", ValueType.INT, 512, minimum=1,
        doc="Maximum number of connections waiting to be accepted.",
    ),
    _key(
        "penstock.request.timeout.ms", ValueType.LONG, 30_000, minimum=1,
        doc="Maximum time from the first to the last byte of a request; then its connection "
            "is closed.",
    ),
    _key(
        "penstock.requests.in.flight.max", ValueType.INT, 100, minimum=1,
        doc="Maximum number of unanswered requests of one connection; then reading pauses.",
    ),
    _key(
        "penstock.unsent.max.bytes", ValueType.INT, 64 << 10, minimum=1 << 10,
        doc="Maximum size of responses that a client has not read; then reading from it pauses.",
    ),
    _key(
        "fetch.max.bytes", ValueType.INT, 55 << 20, minimum=1024,
        doc="Maximum size of a fetch response, whatever the client requests.",
    ),
    _key(
        "max.incremental.fetch.session.cache.slots", ValueType.INT, 1000, minimum=0,
        doc="Maximum number of fetch sessions.",
    ),
)  # fmt: skip

_TOPICS: Final = (
    _key(
        "num.partitions", ValueType.INT, 1, minimum=1,
        doc="Partitions of a topic created without a count.",
    ),
    _key(
        REPLICATION_FACTOR, ValueType.INT, 1, minimum=1,
        update_mode=UpdateMode.CLUSTER_WIDE,
        doc="Replicas of a topic created without a count.",
    ),
    _key(
        "auto.create.topics.enable", ValueType.BOOLEAN, True,
        doc="Create a topic when a client requests one that does not exist.",
    ),
    _key("delete.topic.enable", ValueType.BOOLEAN, True, doc="Allow topics to be deleted."),
    _key(
        "producer.id.expiration.ms", ValueType.INT, DAY_MS, minimum=1,
        doc="Remove an idle producer's sequence numbers from a partition after this time.",
    ),
    _key(
        "log.retention.check.interval.ms", ValueType.LONG, 300_000, minimum=1,
        doc="How often retention checks for old segments.",
    ),
    _key(
        "log.cleaner.backoff.ms", ValueType.LONG, 15_000, minimum=0,
        doc="Pause of compaction when there was nothing to do.",
    ),
    _key(
        "log.cleaner.dedupe.buffer.size", ValueType.LONG, 128 << 20, minimum=1 << 20,
        doc="Memory for the keys of one round of compaction, 32 bytes each.",
    ),
    _key(
        "log.cleaner.io.max.bytes.per.second", ValueType.DOUBLE, sys.float_info.max, minimum=1,
        doc="Maximum number of bytes that compaction reads per second; it reads dirty "
            "segments twice.",
    ),
    _key(
        "broker.heartbeat.interval.ms", ValueType.INT, 250, minimum=10,
        doc="How often a broker sends a heartbeat to the controller.",
    ),
    _key(
        "broker.session.timeout.ms", ValueType.INT, 1000, minimum=100,
        doc="A broker without a heartbeat for this time is fenced: its partitions get other "
            "leaders.",
    ),
    _key(
        "replica.lag.time.max.ms", ValueType.LONG, 30_000, minimum=100,
        doc="A follower that has not caught up with its leader for this time leaves the in-sync "
            "set.",
    ),
    _key(
        "log.flush.offset.checkpoint.interval.ms", ValueType.INT, 60_000, minimum=0,
        doc="How often recovery points are written.",
    ),
    _key(
        "penstock.open.files.max", ValueType.INT, 4096, minimum=64,
        doc="Maximum number of open log files; others are opened when they are used.",
    ),
)  # fmt: skip

_GROUPS: Final = (
    _key(
        "offsets.topic.num.partitions", ValueType.INT, 50, minimum=1,
        doc="Partitions of `__consumer_offsets` when it is created.",
    ),
    _key(
        "offsets.topic.replication.factor", ValueType.SHORT, 3, minimum=1,
        doc="Replicas of `__consumer_offsets`, at most the number of brokers.",
    ),
    _key(
        "offsets.topic.segment.bytes", ValueType.INT, 100 << 20, minimum=1 << 20,
        doc="Its `segment.bytes`.",
    ),
    _key(
        "offsets.retention.minutes", ValueType.INT, 7 * 24 * 60, minimum=1,
        doc="Remove the offsets of an empty group after this time.",
    ),
    _key(
        "offsets.retention.check.interval.ms", ValueType.LONG, 600_000, minimum=1,
        doc="How often expired offsets are removed.",
    ),
    _key(
        "offset.metadata.max.bytes", ValueType.INT, 4096, minimum=0,
        doc="Maximum size of the metadata of an offset commit.",
    ),
    _key(
        "group.initial.rebalance.delay.ms", ValueType.INT, 3000, minimum=0,
        doc="Time that an empty group waits for more members. `penstock up` sets it to 0.",
    ),
    _key(
        "group.min.session.timeout.ms", ValueType.INT, 6000, minimum=0,
        doc="Minimum session timeout of a classic member.",
    ),
    _key(
        "group.max.session.timeout.ms", ValueType.INT, 1_800_000, minimum=0,
        doc="Maximum session timeout of a classic member.",
    ),
    _key(
        "group.max.size", ValueType.INT, INT_MAX, minimum=1,
        doc="Maximum number of members of a classic group.",
    ),
    _key(
        "group.consumer.max.size", ValueType.INT, INT_MAX, minimum=1,
        doc="Maximum number of members of a consumer group.",
    ),
    _key(
        "group.consumer.min.session.timeout.ms", ValueType.INT, 45_000, minimum=1,
        doc="Minimum that a group may set.",
    ),
    _key(
        "group.consumer.max.session.timeout.ms", ValueType.INT, 60_000, minimum=1,
        doc="Maximum that a group may set.",
    ),
    _key(
        "group.consumer.min.heartbeat.interval.ms", ValueType.INT, 5000, minimum=1,
        doc="Minimum that a group may set.",
    ),
    _key(
        "group.consumer.max.heartbeat.interval.ms", ValueType.INT, 15_000, minimum=1,
        doc="Maximum that a group may set.",
    ),
    _key(
        "group.consumer.assignors", ValueType.LIST, ("uniform", "range"),
        choices=("uniform", "range"),
        doc="Assignors that a member may choose; the first is the default.",
    ),
    _key(
        "group.consumer.migration.policy", ValueType.STRING, "bidirectional",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
        doc="Allowed changes of a group between the classic and the consumer protocol.",
    ),
)  # fmt: skip

_TRANSACTIONS: Final = (
    _key(
        "transaction.state.log.num.partitions", ValueType.INT, 50, minimum=1,
        doc="Partitions of `__transaction_state` when it is created.",
    ),
    _key(
        "transaction.state.log.replication.factor", ValueType.SHORT, 3, minimum=1,
        doc="Replicas of `__transaction_state`, at most the number of brokers.",
    ),
    _key(
        "transaction.state.log.min.isr", ValueType.INT, 2, minimum=1,
        doc="Its `min.insync.replicas`.",
    ),
    _key(
        "transaction.state.log.segment.bytes", ValueType.INT, 100 << 20, minimum=1 << 20,
        doc="Its `segment.bytes`.",
    ),
    _key(
        "transaction.max.timeout.ms", ValueType.INT, 900_000, minimum=1,
        doc="Maximum transaction timeout that a producer may set.",
    ),
    _key(
        "transactional.id.expiration.ms", ValueType.INT, 7 * DAY_MS, minimum=1,
        doc="Remove a transactional id that was not used for this time.",
    ),
    _key(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", ValueType.INT, 10_000,
        minimum=1,
        doc="How often timed-out transactions are aborted.",
    ),
    _key(
        "transaction.remove.expired.transaction.cleanup.interval.ms", ValueType.INT, HOUR_MS,
        minimum=1,
        doc="How often expired transactional ids are removed.",
    ),
)  # fmt: skip

_QUOTAS: Final = (
    _key(
        "quota.window.num", ValueType.INT, 11, minimum=1,
        doc="Number of windows that a rate is averaged over.",
    ),
    _key(
        "quota.window.size.seconds", ValueType.INT, 1, minimum=1,
        doc="Length of one such window.",
    ),
    _key(
        "leader.replication.throttled.rate", ValueType.LONG, LONG_MAX, minimum=0,
        update_mode=UpdateMode.PER_BROKER,
        doc="Bytes per second for throttled replicas that this broker leads.",
    ),
    _key(
        "follower.replication.throttled.rate", ValueType.LONG, LONG_MAX, minimum=0,
        update_mode=UpdateMode.PER_BROKER,
        doc="Bytes per second for throttled replicas that follow on this broker.",
    ),
)  # fmt: skip

BROKER_KEYS: Final = key_table(
    *_inherited(TOPIC_KEYS.values()),
    *_inherited(GROUP_KEYS.values()),
    *_IDENTITY,
    *_NETWORK,
    *_TOPICS,
    *_GROUPS,
    *_TRANSACTIONS,
    *_QUOTAS,
)


# The cluster stores these: what the first controller was started with, until they are changed.
CLUSTER_WIDE_KEYS: Final = tuple(
    name for name, key in BROKER_KEYS.items() if key.update_mode is UpdateMode.CLUSTER_WIDE
)


def cluster_wide_values(static: Mapping[str, str]) -> dict[str, str]:
    """What a new cluster stores if its first controller has these settings."""
    return {
        name: static.get(name, BROKER_KEYS[name].default_text() or "") for name in CLUSTER_WIDE_KEYS
    }


def check_broker_overrides(
    overrides: Mapping[str, str], changed: Sequence[str], *, for_all: bool
) -> None:
    """Refuse values that a running broker cannot apply; `changed` are the keys that change now."""
    check_overrides(BROKER_KEYS, overrides, "broker")
    if not for_all and (shared := [name for name in changed if name in CLUSTER_WIDE_KEYS]):
        raise Refused(
            ErrorCode.invalid_request,
            f"Cannot update these configs at per broker level: {', '.join(shared)}; "
            "set them for all brokers",
        )
    if for_all and (missing := [name for name in CLUSTER_WIDE_KEYS if name not in overrides]):
        raise Refused(
            ErrorCode.invalid_request,
            f"Cannot remove these configs of the cluster: {', '.join(missing)}; set another value",
        )
    fixed = [name for name in changed if BROKER_KEYS[name].update_mode is UpdateMode.READ_ONLY]
    if fixed:
        raise Refused(
            ErrorCode.invalid_request,
            f"Cannot update these configs dynamically: {', '.join(fixed)}; "
            "set them when the broker starts",
        )


_BOUNDED: Final = {
    SESSION_TIMEOUT: "session.timeout.ms",
    HEARTBEAT_INTERVAL: "heartbeat.interval.ms",
}


def check_group_overrides(overrides: Mapping[str, str], layers: Layers) -> None:
    """Refuse unknown names, invalid values, and values outside the broker's bounds."""
    check_overrides(GROUP_KEYS, overrides, "group")
    bounds = broker_values(layers)
    for name in overrides.keys() & _BOUNDED.keys():
        value = GROUP_KEYS[name].parse(overrides[name])
        assert isinstance(value, int)
        minimum = bounds.integer(f"group.consumer.min.{_BOUNDED[name]}")
        maximum = bounds.integer(f"group.consumer.max.{_BOUNDED[name]}")
        if not minimum <= value <= maximum:
            raise Refused(
                ErrorCode.invalid_config,
                f"{name} must be between {minimum} (group.consumer.min.{_BOUNDED[name]}) "
                f"and {maximum} (group.consumer.max.{_BOUNDED[name]})",
            )


def broker_values(layers: Layers) -> Values:
    """A broker's effective settings."""
    return Values(BROKER_KEYS, {}, ConfigSource.STATIC_BROKER, layers)
