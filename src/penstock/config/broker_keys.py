"""The keys of a broker, with Apache Kafka's names and defaults.

Those that only give a default to topics or groups are made from the rows of those keys.

The keys a group may set, with Apache Kafka's names and defaults, and one of our own.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from penstock.config.key_rows import INT_MAX, LONG_MAX, Change, Key, Kind, Synonym, Value, key_table
from penstock.config.resolve import Layers, Source, Values, valid_overrides
from penstock.config.topic_keys import DAY_MS, HOUR_MS, TOPIC_KEYS
from penstock.errors import ErrorCode, Refused

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
OFFSETS_MONOTONIC: Final = "penstock.offsets.monotonic"

GROUP_KEYS: Final = key_table(
    Key(
        name=SESSION_TIMEOUT, kind=Kind.INT, default=45_000, least=1,
        synonyms=(Synonym("group.consumer.session.timeout.ms"),),
        doc="A member of a consumer group that is silent for this time is taken out.",
    ),
    Key(
        name=HEARTBEAT_INTERVAL, kind=Kind.INT, default=5000, least=1,
        synonyms=(Synonym("group.consumer.heartbeat.interval.ms"),),
        doc="How often a member of a group reports; sooner while it waits for partitions.",
    ),
    Key(
        name=OFFSETS_MONOTONIC, kind=Kind.BOOLEAN, default=False,
        doc="Refuse to commit an offset below the one committed before; going back takes a reset.",
    ),
)  # fmt: skip


def group_values(overrides: Mapping[str, str], layers: Layers) -> Values:
    """A group's effective settings."""
    return Values(GROUP_KEYS, overrides, Source.GROUP, layers)


def _key(
    name: str,
    kind: Kind,
    default: Value,
    *,
    doc: str,
    least: float | None = None,
    most: float | None = None,
    choices: tuple[str, ...] = (),
    change: Change = Change.RESTART,
    sensitive: bool = False,
) -> Key:
    return Key(
        name=name, kind=kind, default=default, doc=doc, least=least, most=most,
        choices=choices, change=change, sensitive=sensitive,
    )  # fmt: skip


def _inherited(keys: Iterable[Key]) -> list[Key]:
    """A broker key for each synonym of a topic or group key: its default for all of them.

    Where one key has several synonyms, only the coarsest carries the default, as in Kafka: the
    finer ones count when they are set.
    """
    rows = []
    for key in keys:
        for synonym in key.synonyms:
            is_last = synonym == key.synonyms[-1]
            default = key.default if is_last and key.name != "flush.ms" else None
            if isinstance(default, int) and synonym.factor > 1:
                default //= synonym.factor
            scaled = synonym.factor > 1
            rows.append(
                replace(
                    key,
                    name=str(synonym),
                    kind=Kind.INT if scaled else key.kind,
                    default=default,
                    doc=f"The default of `{key.name}`.",
                    synonyms=(),
                    change=Change.RESTART if scaled else Change.PER_BROKER,
                )
            )
    return rows


_IDENTITY: Final = (
    _key("node.id", Kind.INT, 1, least=0, doc="The broker's number in the cluster."),
    _key("broker.id", Kind.INT, 1, least=-1, doc="The older name of `node.id`."),
    _key("broker.rack", Kind.STRING, None, doc="Where the broker stands; shown to clients."),
    _key("listeners", Kind.LIST, ("PLAINTEXT://127.0.0.1:9092",), doc="Where clients connect."),
    _key("advertised.listeners", Kind.LIST, None, doc="Where clients are told to connect."),
    _key("log.dirs", Kind.LIST, None, doc="Where the logs live."),
)

_NETWORK: Final = (
    _key(
        "socket.request.max.bytes", Kind.INT, 100 << 20, least=1,
        doc="A larger request closes its connection.",
    ),
    _key(
        "max.connections", Kind.INT, 4000, least=0,
        doc="Connections at a time; one more is closed at once.",
    ),
    _key(
        "max.connections.per.ip", Kind.INT, 4000, least=0,
        doc="Connections at a time from one address; one more is closed at once.",
    ),
    _key(
        "connections.max.idle.ms", Kind.LONG, 600_000, least=1,
        doc="A connection without a request for this time is closed.",
    ),
    _key("socket.listen.backlog.size", Kind.INT, 512, least=1, doc="Connections not yet accepted."),
    _key(
        "penstock.request.timeout.ms", Kind.LONG, 30_000, least=1,
        doc="A request that began to arrive must be whole by then, or its connection is closed.",
    ),
    _key(
        "penstock.requests.in.flight.max", Kind.INT, 100, least=1,
        doc="Requests of one connection without their answer; at that, reading pauses.",
    ),
    _key(
        "penstock.unsent.max.bytes", Kind.INT, 64 << 10, least=1 << 10,
        doc="Answers that a client does not read; at that, reading from it pauses.",
    ),
    _key(
        "fetch.max.bytes", Kind.INT, 55 << 20, least=1024,
        doc="Largest answer to a fetch, whatever the client asks for.",
    ),
    _key(
        "max.incremental.fetch.session.cache.slots", Kind.INT, 1000, least=0,
        doc="Fetch sessions at a time.",
    ),
)  # fmt: skip

_TOPICS: Final = (
    _key("num.partitions", Kind.INT, 1, least=1, doc="Partitions of a topic made without a count."),
    _key(
        "default.replication.factor", Kind.INT, 1, least=1,
        doc="Replicas of a topic made without a count.",
    ),
    _key(
        "auto.create.topics.enable", Kind.BOOLEAN, True,
        doc="A client that asks for a topic that is not there makes it.",
    ),
    _key("delete.topic.enable", Kind.BOOLEAN, True, doc="Topics may be deleted."),
    _key(
        "producer.id.expiration.ms", Kind.INT, DAY_MS, least=1,
        doc="A partition forgets an idle producer's sequence after this time.",
    ),
    _key(
        "log.retention.check.interval.ms", Kind.LONG, 300_000, least=1,
        doc="How often old segments are looked for.",
    ),
    _key(
        "log.cleaner.backoff.ms", Kind.LONG, 15_000, least=0, change=Change.PER_BROKER,
        doc="How long compaction rests when there was nothing to do.",
    ),
    _key(
        "log.cleaner.dedupe.buffer.size", Kind.LONG, 128 << 20, least=1 << 20,
        doc="Memory for the keys of one round of compaction: 32 bytes for each.",
    ),
    _key(
        "log.cleaner.io.max.bytes.per.second", Kind.DOUBLE, sys.float_info.max, least=1,
        doc="What compaction may read in a second; it reads what is dirty twice.",
    ),
    _key(
        "log.flush.offset.checkpoint.interval.ms", Kind.INT, 60_000, least=0,
        doc="How often the recovery points are written.",
    ),
    _key(
        "penstock.open.files.max", Kind.INT, 4096, least=64,
        doc="Log files held open at a time; more are opened and closed as they are used.",
    ),
)  # fmt: skip

_GROUPS: Final = (
    _key(
        "offsets.topic.num.partitions", Kind.INT, 50, least=1,
        doc="Partitions of `__consumer_offsets` when it is made.",
    ),
    _key(
        "offsets.topic.replication.factor", Kind.SHORT, 3, least=1,
        doc="Replicas of `__consumer_offsets`; never more than there are brokers.",
    ),
    _key("offsets.topic.segment.bytes", Kind.INT, 100 << 20, least=1 << 20, doc="Its segments."),
    _key(
        "offsets.retention.minutes", Kind.INT, 7 * 24 * 60, least=1,
        doc="Offsets of a group that is empty are forgotten after this time.",
    ),
    _key(
        "offsets.retention.check.interval.ms", Kind.LONG, 600_000, least=1,
        doc="How often expired offsets are looked for.",
    ),
    _key("offset.metadata.max.bytes", Kind.INT, 4096, least=0, doc="Metadata of one commit."),
    _key(
        "group.initial.rebalance.delay.ms", Kind.INT, 3000, least=0,
        doc="An empty group waits this long for more members. `penstock up` sets it to 0.",
    ),
    _key("group.min.session.timeout.ms", Kind.INT, 6000, least=0, doc="The least one may ask."),
    _key("group.max.session.timeout.ms", Kind.INT, 1_800_000, least=0, doc="The most one may ask."),
    _key("group.max.size", Kind.INT, INT_MAX, least=1, doc="Members of a classic group."),
    _key("group.consumer.max.size", Kind.INT, INT_MAX, least=1, doc="Members of a consumer group."),
    _key(
        "group.consumer.min.session.timeout.ms", Kind.INT, 45_000, least=1,
        doc="The least a group may set.",
    ),
    _key(
        "group.consumer.max.session.timeout.ms", Kind.INT, 60_000, least=1,
        doc="The most a group may set.",
    ),
    _key(
        "group.consumer.min.heartbeat.interval.ms", Kind.INT, 5000, least=1,
        doc="The least a group may set.",
    ),
    _key(
        "group.consumer.max.heartbeat.interval.ms", Kind.INT, 15_000, least=1,
        doc="The most a group may set.",
    ),
    _key(
        "group.consumer.assignors", Kind.LIST, ("uniform", "range"),
        choices=("uniform", "range"),
        doc="Assignors a member may ask for; the first is the default.",
    ),
    _key(
        "group.consumer.migration.policy", Kind.STRING, "bidirectional",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
        doc="Which way a group may change between the classic and the consumer protocol.",
    ),
)  # fmt: skip

_TRANSACTIONS: Final = (
    _key(
        "transaction.state.log.num.partitions", Kind.INT, 50, least=1,
        doc="Partitions of `__transaction_state` when it is made.",
    ),
    _key(
        "transaction.state.log.replication.factor", Kind.SHORT, 3, least=1,
        doc="Replicas of `__transaction_state`; never more than there are brokers.",
    ),
    _key("transaction.state.log.min.isr", Kind.INT, 2, least=1, doc="Its `min.insync.replicas`."),
    _key(
        "transaction.state.log.segment.bytes", Kind.INT, 100 << 20, least=1 << 20,
        doc="Its segments.",
    ),
    _key(
        "transaction.max.timeout.ms", Kind.INT, 900_000, least=1,
        doc="The longest transaction a producer may ask for.",
    ),
    _key(
        "transactional.id.expiration.ms", Kind.INT, 7 * DAY_MS, least=1,
        doc="A transactional id without news for this time is forgotten.",
    ),
    _key(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", Kind.INT, 10_000, least=1,
        doc="How often transactions past their time are looked for.",
    ),
    _key(
        "transaction.remove.expired.transaction.cleanup.interval.ms", Kind.INT, HOUR_MS, least=1,
        doc="How often forgotten transactional ids are looked for.",
    ),
)  # fmt: skip

_QUOTAS: Final = (
    _key("quota.window.num", Kind.INT, 11, least=1, doc="Windows a rate is averaged over."),
    _key("quota.window.size.seconds", Kind.INT, 1, least=1, doc="The length of such a window."),
    _key(
        "leader.replication.throttled.rate", Kind.LONG, LONG_MAX, least=0,
        change=Change.PER_BROKER, doc="Bytes per second for throttled replicas this broker leads.",
    ),
    _key(
        "follower.replication.throttled.rate", Kind.LONG, LONG_MAX, least=0,
        change=Change.PER_BROKER, doc="Bytes per second for throttled replicas that follow here.",
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


def check_broker_overrides(overrides: Mapping[str, str], touched: Sequence[str]) -> None:
    """Refuse what a running broker cannot take; `touched` are the keys that change now."""
    valid_overrides(BROKER_KEYS, overrides, "broker")
    fixed = [name for name in touched if BROKER_KEYS[name].change is Change.RESTART]
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
    """Refuse what no group can have: unknown names, bad values, or beyond our bounds."""
    valid_overrides(GROUP_KEYS, overrides, "group")
    bounds = broker_values(layers)
    for name in overrides.keys() & _BOUNDED.keys():
        value = GROUP_KEYS[name].parse(overrides[name])
        assert isinstance(value, int)
        least = bounds.whole(f"group.consumer.min.{_BOUNDED[name]}")
        most = bounds.whole(f"group.consumer.max.{_BOUNDED[name]}")
        if not least <= value <= most:
            raise Refused(
                ErrorCode.invalid_config,
                f"{name} must be between {least} (group.consumer.min.{_BOUNDED[name]}) "
                f"and {most} (group.consumer.max.{_BOUNDED[name]})",
            )


def broker_values(layers: Layers) -> Values:
    """A broker's effective settings."""
    return Values(BROKER_KEYS, {}, Source.STATIC_BROKER, layers)
