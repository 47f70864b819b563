"""How commands connect to a Kafka cluster, and how they report its errors."""

import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import typer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from penstock.cli.error_output import UNREACHABLE, fail
from penstock.cli.options import KAFKA_CONFIG
from penstock.errors import Refused
from penstock.link.settings import client_settings, librdkafka_settings, read_properties

WAIT_S: Final = 10.0
CONNECT_S: Final = 3.0
_UNREACHABLE: Final = (  # librdkafka's own codes: no broker was reached
    KafkaError._TRANSPORT,  # noqa: SLF001 - its names begin so
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - its names begin so
    KafkaError._TIMED_OUT,  # noqa: SLF001 - its names begin so
    KafkaError._RESOLVE,  # noqa: SLF001 - its names begin so
)


def kafka_properties(bootstrap: str) -> dict[str, str]:
    """How to connect: an address, and TLS and login from the file that the environment names."""
    path = os.environ.get(KAFKA_CONFIG)
    try:
        properties = read_properties(path) if path else {}
    except Refused as refusal:
        fail(f"{KAFKA_CONFIG}: {refusal.message}")
    return {**properties, "bootstrap.servers": bootstrap}


def login(bootstrap: str) -> dict[str, str]:
    """The same in librdkafka's names."""
    return librdkafka_settings(kafka_properties(bootstrap))


def quiet_client(bootstrap: str, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """librdkafka's settings for a client that logs nothing: the command reports errors."""
    timeout = {"socket.timeout.ms": int(WAIT_S * 1000)}
    return client_settings(bootstrap, {**login(bootstrap), **timeout, **(settings or {})})


def check_reachable(bootstrap: str, option: str = "--bootstrap host:port") -> None:
    """Fail immediately if no broker listens, where the client would retry for long.

    `option` is how this command names another address.
    """
    reason = ""
    for address in bootstrap.split(","):
        host, _, port = address.strip().rpartition("://")[2].rpartition(":")
        if not port.isdecimal():
            raise typer.BadParameter(f"{address!r} is not host:port")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S):
                return
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
        except UnicodeError:
            reason = "invalid host name"
    fail(
        f"cannot connect to {bootstrap}: {reason}. Is the broker running? Start one with "
        f"`penstock up`, or name another with {option}.",
        UNREACHABLE,
    )


def admin(bootstrap: str) -> AdminClient:
    """An admin client of a cluster that is reachable."""
    check_reachable(bootstrap)
    return AdminClient(quiet_client(bootstrap))


@contextmanager
def kafka_errors(bootstrap: str, topic: str | None = None) -> Iterator[None]:
    """Turn an error inside into a message and an exit status."""
    try:
        yield
    except KafkaException as failure:
        fail_with(failure.args[0], bootstrap, topic)
    except TimeoutError:
        fail_with(KafkaError(KafkaError._TIMED_OUT), bootstrap, topic)  # noqa: SLF001 - as above


def partitions_of(
    client: Consumer | Producer, topic: str, bootstrap: str, required: Iterable[int] = ()
) -> set[int]:
    """The partitions of a topic; fails if the topic, or a required partition, does not exist."""
    metadata = client.list_topics(topic, timeout=WAIT_S / 2).topics[topic]
    if metadata.error is not None:
        fail_with(metadata.error, bootstrap, topic)
    missing = set(required) - set(metadata.partitions)
    if missing:
        fail(f"{topic} has no partition {min(missing)}; it has {len(metadata.partitions)}.")
    return set(metadata.partitions)


def is_unreachable(error: KafkaError) -> bool:
    """Whether no broker was reached."""
    return error.code() in _UNREACHABLE


def no_topic(topic: str) -> NoReturn:
    """Fail because a topic does not exist."""
    fail(
        f"topic {topic!r} does not exist. List topics with `penstock topic list`, "
        f"create it with `penstock topic create {topic or 'NAME'}`."
    )


def fail_with(error: KafkaError, bootstrap: str, topic: str | None = None) -> NoReturn:
    """Report an error and what to do about it, and exit."""
    code = error.code()
    if is_unreachable(error):
        check_reachable(bootstrap)
        fail(
            f"{bootstrap} accepts connections but does not respond. If it requires TLS or a login, "
            f"{KAFKA_CONFIG} must name a properties file with both.",
            UNREACHABLE,
        )
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):  # noqa: SLF001 - as above
        no_topic(topic or "")
    if code == KafkaError.TOPIC_EXCEPTION:
        fail(
            f"{topic or ''!r} is not a valid topic name: use 1 to 249 ASCII letters, digits, "
            "'.', '_' and '-'."
        )
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        fail(
            f"a message is larger than {topic} accepts; raise the limit with "
            f"`penstock topic alter {topic} -c max.message.bytes=N`."
        )
    if code == KafkaError._UNKNOWN_PARTITION:  # noqa: SLF001 - as above
        fail(f"{topic} has no such partition; `penstock topic describe {topic}` lists them.")
    fail(error.str())


def unescaped(text: str) -> bytes:
    """Text of the command line as bytes, with escapes such as \\t replaced."""
    try:
        return text.encode().decode("unicode_escape").encode("latin-1")
    except UnicodeError:
        raise typer.BadParameter(
            f"{text!r}: escapes are \\n, \\t, \\xHH and so on; a backslash is \\\\"
        ) from None
