"""Which settings of librdkafka a producer of columns understands, and what they mean for it.

`link` sends many events at once, and has less to set than librdkafka. With a setting that it does
not have, librdkafka sends them: no setting is ignored that could change what is written.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.columns.build_batches import Framing
from penstock.columns.record_kernels_write import RECORD_BYTES_MAX
from penstock.errors import Refused
from penstock.link.settings import LINK_PROPERTIES, LinkSettings, link_settings
from penstock.protocol.compression import Codec
from penstock.protocol.messages.produce import ALL_IN_SYNC

_ALIASES: Final = {
    "request.required.acks": "acks",
    "compression.codec": "compression.type",
    "queue.buffering.max.ms": "linger.ms",
    "delivery.timeout.ms": "message.timeout.ms",
    "metadata.broker.list": "bootstrap.servers",
}
_DEFAULTS: Final[Mapping[str, Any]] = {  # librdkafka's, except for the size of the queue
    "acks": "all",
    "batch.num.messages": 100_000,
    "batch.size": 1_000_000,
    "compression.level": -1,
    "compression.type": "none",
    "enable.idempotence": False,
    "linger.ms": 5,
    "message.max.bytes": 1_000_000,
    "message.timeout.ms": 300_000,
    "partitioner": "murmur2_random",
    "queue.buffering.max.kbytes": 64 << 10,
}
# About librdkafka's own threads, connections and retries: nothing that is written depends on them.
_WITHOUT_EFFECT: Final = frozenset(
    {
        "broker.address.family", "client.dns.lookup", "client.rack", "connections.max.idle.ms",
        "debug", "error_cb", "log_level", "logger", "max.in.flight",
        "max.in.flight.requests.per.connection", "message.send.max.retries",
        "metadata.max.age.ms", "queue.buffering.max.messages", "reconnect.backoff.max.ms",
        "reconnect.backoff.ms", "retries", "retry.backoff.max.ms", "retry.backoff.ms",
        "socket.connection.setup.timeout.ms", "socket.keepalive.enable", "socket.timeout.ms",
        "statistics.interval.ms", "stats_cb", "sticky.partitioning.linger.ms",
        "topic.metadata.refresh.interval.ms",
    }
)  # fmt: skip
_ALL: Final = {"all": ALL_IN_SYNC, "-1": ALL_IN_SYNC}
_FOREVER_MS: Final = (1 << 31) - 1
_BATCH_BYTES_MIN: Final = 1024


@dataclass(frozen=True, slots=True)
class ColumnSettings:
    """How batches of columns are built and sent."""

    link: LinkSettings
    framing: Framing
    acks: int
    is_idempotent: bool
    linger_s: float
    queue_bytes_max: int


def column_settings(given: Mapping[str, Any]) -> ColumnSettings | None:
    """What these settings of librdkafka mean; None if one of them is unknown here."""
    named = {_ALIASES.get(name, name): value for name, value in given.items()}
    if not set(named) <= _WITHOUT_EFFECT | set(_DEFAULTS) | LINK_PROPERTIES:
        return None
    settings = {**_DEFAULTS, **named}
    if settings["partitioner"] != _DEFAULTS["partitioner"]:
        return None
    try:
        link = link_settings({name: str(value) for name, value in named.items()})
    except Refused:
        return None
    message_bytes_max = min(int(settings["message.max.bytes"]), RECORD_BYTES_MAX)
    batch_bytes = max(_BATCH_BYTES_MIN, min(int(settings["batch.size"]), message_bytes_max))
    level = int(settings["compression.level"])
    acks = str(settings["acks"])
    return ColumnSettings(
        link=replace(
            link,
            retry_timeout_ms=int(settings["message.timeout.ms"]) or _FOREVER_MS,
            creates_topics=True,
        ),
        framing=Framing(
            Codec[str(settings["compression.type"]).upper()],
            None if level < 0 else level,
            batch_bytes,
            int(settings["batch.num.messages"]),
            message_bytes_max,
        ),
        acks=_ALL[acks] if acks in _ALL else int(acks),
        is_idempotent=str(settings["enable.idempotence"]).lower() in ("true", "1"),
        linger_s=float(settings["linger.ms"]) / 1000,
        queue_bytes_max=int(settings["queue.buffering.max.kbytes"]) << 10,
    )
