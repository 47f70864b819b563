"""The group coordinator's view of the broker's settings."""

from dataclasses import dataclass
from typing import Annotated, Final

from penstock.config.resolve import Row
from penstock.model import Millis

MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Limits and time-outs of groups, fixed at the start of the broker."""

    session_timeout_min_ms: Annotated[Millis, Row("group.min.session.timeout.ms")]
    session_timeout_max_ms: Annotated[Millis, Row("group.max.session.timeout.ms")]
    initial_rebalance_delay_ms: Annotated[Millis, Row("group.initial.rebalance.delay.ms")]
    members_max: Annotated[int, Row("group.max.size")]
    consumer_session_timeout_ms: Annotated[Millis, Row("group.consumer.session.timeout.ms")]
    consumer_members_max: Annotated[int, Row("group.consumer.max.size")]
    assignors: Annotated[tuple[str, ...], Row("group.consumer.assignors")]  # first: the default
    # A group with members may change from the classic to the consumer protocol.
    may_upgrade: Annotated[
        bool,
        Row(
            "group.consumer.migration.policy", lambda policy: policy in ("bidirectional", "upgrade")
        ),
    ]
    # A group with classic members only may change back.
    may_downgrade: Annotated[
        bool,
        Row(
            "group.consumer.migration.policy",
            lambda policy: policy in ("bidirectional", "downgrade"),
        ),
    ]
    offset_metadata_bytes_max: Annotated[int, Row("offset.metadata.max.bytes")]
    offsets_retention_ms: Annotated[
        Millis, Row("offsets.retention.minutes", lambda minutes: minutes * MINUTE_MS)
    ]
    offsets_retention_check_ms: Annotated[Millis, Row("offsets.retention.check.interval.ms")]
