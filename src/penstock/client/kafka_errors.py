"""librdkafka's errors as messages that say what to do, and its reports as log lines."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException

from penstock.client.rate_limited_log import RateLimitedLog
from penstock.link.settings import ClientReports, client_settings
from penstock.serde.errors import ArgumentError, ClientError

logger: Final = logging.getLogger(__name__)

_UNREACHABLE: Final = (
    KafkaError._TRANSPORT,  # noqa: SLF001 - names of librdkafka's own codes begin so
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - as above
    KafkaError._RESOLVE,  # noqa: SLF001 - as above
)
_CHECK_BROKER: Final = "is the broker running, and is the address right?"
_FENCED: Final = "another producer took over the transactional id. Use one id per producer."
_ADVICE: Final = {
    **dict.fromkeys(_UNREACHABLE, _CHECK_BROKER),
    KafkaError._MSG_TIMED_OUT: (  # noqa: SLF001 - as above
        "no broker accepted it in time. Is the cluster reachable, and does the topic exist?"
    ),
    KafkaError._UNKNOWN_TOPIC: "create the topic, or let brokers create topics.",  # noqa: SLF001 - as above
    KafkaError.UNKNOWN_TOPIC_OR_PART: "create the topic, or let brokers create topics.",
    KafkaError._UNKNOWN_PARTITION: "the topic has fewer partitions.",  # noqa: SLF001 - as above
    KafkaError.MSG_SIZE_TOO_LARGE: (
        "raise message.max.bytes here and the topic's max.message.bytes, or send less."
    ),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "this user has no access to the topic.",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "this user has no access to the group.",
    KafkaError._FENCED: f"{_FENCED} Restart this one if it is the one to keep.",  # noqa: SLF001 - as above
    KafkaError.PRODUCER_FENCED: _FENCED,
    KafkaError._MAX_POLL_EXCEEDED: (  # noqa: SLF001 - as above
        "the process was suspended for longer than max.poll.interval.ms."
    ),
}

_Client = TypeVar("_Client")


class BrokerError(ClientError):
    """A broker refused a request, or could not be reached."""

    def __init__(self, error: KafkaError, doing: str) -> None:
        super().__init__(f"{doing}: {explained(error)}")
        self.error = error
        self.retriable: bool = bool(error.retriable()) or error.code() in _UNREACHABLE


def explained(error: KafkaError) -> str:
    """librdkafka's message, and what to do about it."""
    advice = _ADVICE.get(error.code())
    return f"{error.str()} ({error.name()})" + (f": {advice}" if advice else "")


def ends_reading(error: KafkaError) -> bool:
    """Whether a consumer cannot continue after this; librdkafka recovers from all else."""
    code = error.code()
    if code in _UNREACHABLE or code == KafkaError._PARTITION_EOF:  # noqa: SLF001 - as above
        return False
    return bool(error.fatal()) or not (error.retriable() or is_unknown_topic(error))


def is_unknown_topic(error: KafkaError) -> bool:
    """Whether the topic does not exist; it may be created later."""
    return error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)  # noqa: SLF001 - as above


class KafkaReports:
    """What librdkafka reports about one client, logged at most once per kind and minute.

    `last_error` is the latest error, to explain what a caller waits for.
    """

    def __init__(self, bootstrap: str) -> None:
        self.last_error: str = ""
        self._bootstrap = bootstrap
        self._lines = RateLimitedLog(logger)

    def on_error(self, error: KafkaError) -> None:
        """librdkafka's `error_cb`. One lost connection is routine; having none left is not."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - as above
            cause = self.last_error or error.str()
            self._lines.log(
                "down", logging.WARNING, "cannot connect to %s: %s; retrying; %s",
                self._bootstrap, cause, _CHECK_BROKER,
            )  # fmt: skip
            return
        self.last_error = error.str()
        level = logging.INFO if error.code() in _UNREACHABLE else logging.WARNING
        self._lines.log(error.code(), level, "%s: %s", self._bootstrap, explained(error))

    def log(self, level: int, text: str, facility: str, client: str, line: str) -> None:
        """librdkafka's `logger`. Its FAIL lines repeat what `error_cb` gets."""
        shown = logging.DEBUG if facility == "FAIL" else level
        self._lines.log((facility, line[:40]), shown, text, facility, client, line)


def connect_client(
    make: Callable[[dict[str, Any]], _Client],
    bootstrap: str,
    settings: Mapping[str, Any],
    reports: ClientReports | None = None,
) -> _Client:
    """A client of librdkafka; raises ArgumentError if it refuses its settings."""
    try:
        return make(client_settings(bootstrap, settings, reports or KafkaReports(bootstrap)))
    except KafkaException as failure:
        reason = failure.args[0].str()
    except (TypeError, ValueError) as invalid:
        reason = str(invalid)
    raise ArgumentError(
        f"the client's settings are invalid: {reason}. `settings` takes librdkafka's names and "
        "values, such as {'acks': 'all'}"
    )
