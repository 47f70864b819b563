"""librdkafka's errors as sentences that say what to do."""

import logging
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError

from penstock.client.errors import ClientError

logger = logging.getLogger(__name__)

_NOBODY: Final = (
    KafkaError._TRANSPORT,  # noqa: SLF001 - librdkafka's own codes begin so
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - as above
    KafkaError._RESOLVE,  # noqa: SLF001 - as above
)
_ADVICE: Final = {
    KafkaError._MSG_TIMED_OUT: (  # noqa: SLF001 - as above
        "no broker took it in time. Is the cluster reachable from here, and does the topic exist?"
    ),
    KafkaError._UNKNOWN_TOPIC: "create the topic, or let brokers create topics.",  # noqa: SLF001 - as above
    KafkaError.UNKNOWN_TOPIC_OR_PART: "create the topic, or let brokers create topics.",
    KafkaError._UNKNOWN_PARTITION: "the topic has fewer partitions.",  # noqa: SLF001 - as above
    KafkaError.MSG_SIZE_TOO_LARGE: (
        "raise message.max.bytes here and the topic's max.message.bytes, or send less at once."
    ),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "this user may not use the topic.",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "this user may not use the group.",
    KafkaError._FENCED: (  # noqa: SLF001 - as above
        "another producer has the same transactional id and took over. Give each its own, and "
        "start this one again if it is the one to go on."
    ),
    KafkaError.PRODUCER_FENCED: (
        "another producer has the same transactional id and took over. Give each its own."
    ),
    KafkaError._MAX_POLL_EXCEEDED: (  # noqa: SLF001 - as above
        "the process stood still for longer than max.poll.interval.ms."
    ),
}

_REACH_BEGINS: Final = ("security.", "sasl.", "ssl.", "enable.ssl.", "enable.sasl.", "socket.")
_REACH: Final = (
    "client.id", "client.rack", "client.dns.lookup", "broker.address.family", "oauth_cb",
)  # fmt: skip


class KafkaFailed(ClientError):
    """The cluster declined, or could not be reached."""

    def __init__(self, error: KafkaError, doing: str) -> None:
        super().__init__(f"{doing}: {explained(error)}")
        self.error = error
        self.retriable = bool(error.retriable()) or error.code() in _NOBODY


def explained(error: KafkaError) -> str:
    """What librdkafka says, and what to do about it."""
    advice = _ADVICE.get(error.code())
    return f"{error.str()} ({error.name()})" + (f": {advice}" if advice else "")


def ends_reading(error: KafkaError) -> bool:
    """Whether a consumer cannot go on after this; all else librdkafka mends by itself."""
    code = error.code()
    if code in _NOBODY or code == KafkaError._PARTITION_EOF:  # noqa: SLF001 - as above
        return False
    is_absent = code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)  # noqa: SLF001 - as above
    return bool(error.fatal()) or not (error.retriable() or is_absent)


def reach_of(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """What of a client's settings says how brokers are reached: good for any other client too."""
    return {
        name: value
        for name, value in (settings or {}).items()
        if name.startswith(_REACH_BEGINS) or name in _REACH
    }


def connection_settings(bootstrap: str, more: dict[str, Any]) -> dict[str, Any]:
    """librdkafka's settings; what it would print goes to our log."""
    return {
        "bootstrap.servers": bootstrap,
        "error_cb": lambda error: logger.info("%s: %s", bootstrap, error.str()),
        "logger": logger,
        **more,
    }
