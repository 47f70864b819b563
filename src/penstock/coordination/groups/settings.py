"""What the group coordinator must know of its settings. The defaults are Apache Kafka's."""

from dataclasses import dataclass

from penstock.model import Millis


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Limits and spans of groups; built once from the rows by the node."""

    session_timeout_min_ms: Millis = Millis(6_000)
    session_timeout_max_ms: Millis = Millis(1_800_000)
    initial_rebalance_delay_ms: Millis = Millis(3_000)
    members_max: int = 2**31 - 1
    consumer_session_timeout_ms: Millis = Millis(45_000)
    consumer_members_max: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")  # the first is the default
    may_upgrade: bool = True  # classic groups to the consumer protocol while they have members
    may_downgrade: bool = True  # and back, when only classic members are left
    offset_metadata_bytes_max: int = 4096
    offsets_retention_ms: Millis = Millis(10_080 * 60_000)
    offsets_retention_check_ms: Millis = Millis(600_000)
