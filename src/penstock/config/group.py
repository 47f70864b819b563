"""The keys a group may set, with Apache Kafka's names and defaults, and one of our own."""

from collections.abc import Mapping
from typing import Final

from penstock.config.keys import Key, Kind, Synonym, key_table
from penstock.config.resolve import Layers, Source, Values

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
