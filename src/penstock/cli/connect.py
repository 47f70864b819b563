"""How commands reach a cluster, and what they say when it does not do what was asked."""

import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Final, NoReturn

import typer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from penstock.cli.broker_options import KAFKA_CONFIG
from penstock.cli.error_output import REFUSED, UNREACHABLE, fail
from penstock.errors import Refused
from penstock.link.settings import client_settings, librdkafka_settings, read_properties

__all__ = ["REFUSED", "UNREACHABLE", "fail"]  # beside what is defined here

WAIT_S: Final = 10.0
CONNECT_S: Final = 3.0
_NOBODY: Final = (  # librdkafka's own codes: no broker was reached
    KafkaError._TRANSPORT,  # noqa: SLF001 - its names begin so
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - its names begin so
    KafkaError._TIMED_OUT,  # noqa: SLF001 - its names begin so
    KafkaError._RESOLVE,  # noqa: SLF001 - its names begin so
)

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap", "-b", envvar="PENSTOCK_BOOTSTRAP", help="A broker of the cluster: host:port."
    ),
]
LOCAL: Final = "127.0.0.1:9092"


def kafka_properties(bootstrap: str) -> dict[str, str]:
    """How the cluster is reached: an address, and logins from the file the environment names."""
    path = os.environ.get(KAFKA_CONFIG)
    try:
        named = read_properties(path) if path else {}
    except Refused as refusal:
        fail(f"{KAFKA_CONFIG}: {refusal.message}")
    return {**named, "bootstrap.servers": bootstrap}


def login(bootstrap: str) -> dict[str, str]:
    """The same in librdkafka's names."""
    return librdkafka_settings(kafka_properties(bootstrap))


def quiet_client(bootstrap: str, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """librdkafka's settings for a client that logs nothing: the command reports errors."""
    timeout = {"socket.timeout.ms": int(WAIT_S * 1000)}
    return client_settings(bootstrap, {**login(bootstrap), **timeout, **(settings or {})})


def check_reachable(bootstrap: str, option: str = "--bootstrap host:port") -> None:
    """Fail at once if no broker listens, where the client would keep trying for long.

    `option` is how this command names another address.
    """
    for address in bootstrap.split(","):
        host, _, port = address.strip().rpartition("://")[2].rpartition(":")
        if not port.isdecimal():
            raise typer.BadParameter(f"{address!r} is not host:port")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S):
                return
        except (OSError, UnicodeError):  # UnicodeError: what no name of a host can be
            continue
    fail(
        f"nobody answers at {bootstrap}. Is the broker running? Start one with `penstock up`, "
        f"or name another with {option}.",
        UNREACHABLE,
    )


def admin(bootstrap: str) -> AdminClient:
    """A client for administration of a cluster that is there."""
    check_reachable(bootstrap)
    return AdminClient(quiet_client(bootstrap))


@contextmanager
def telling(bootstrap: str, topic: str | None = None) -> Iterator[None]:
    """Turn what goes wrong inside into a message and an exit status."""
    try:
        yield
    except KafkaException as failure:
        tell(failure.args[0], bootstrap, topic)
    except TimeoutError:
        tell(KafkaError(KafkaError._TIMED_OUT), bootstrap, topic)  # noqa: SLF001 - as above


def partitions_of(
    client: Consumer | Producer, topic: str, bootstrap: str, wanted: Iterable[int] = ()
) -> set[int]:
    """The partitions a topic has; says so and leaves if there is no such topic, or not these."""
    found = client.list_topics(topic, timeout=WAIT_S / 2).topics[topic]
    if found.error is not None:
        tell(found.error, bootstrap, topic)
    missing = set(wanted) - set(found.partitions)
    if missing:
        fail(f"{topic} has no partition {min(missing)}; it has {len(found.partitions)}.")
    return set(found.partitions)


def is_nobody(error: KafkaError) -> bool:
    """Whether it was not a broker that said so, for none was reached."""
    return error.code() in _NOBODY


def tell(error: KafkaError, bootstrap: str, topic: str | None = None) -> NoReturn:
    """Say what is wrong and what to do, and leave."""
    code = error.code()
    if is_nobody(error):
        check_reachable(bootstrap)
        fail(
            f"{bootstrap} is there and does not answer. If it asks for TLS or a login, "
            f"{KAFKA_CONFIG} names a properties file with both.",
            UNREACHABLE,
        )
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):  # noqa: SLF001 - as above
        fail(
            f"there is no topic {topic or ''!r}. `penstock topic list` shows what there is, "
            f"`penstock topic create {topic or 'NAME'}` makes it."
        )
    if code == KafkaError.TOPIC_EXCEPTION:
        fail(
            f"{topic or ''!r} cannot be a topic: a name has 1 to 249 ASCII letters, digits, "
            "'.', '_' and '-'."
        )
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        fail(
            f"a message is longer than {topic} takes; "
            f"`penstock topic alter {topic} -c max.message.bytes=N` allows more."
        )
    if code == KafkaError._UNKNOWN_PARTITION:  # noqa: SLF001 - as above
        fail(f"{topic} has no such partition; `penstock topic describe {topic}` shows them.")
    fail(error.str())


def unescaped(text: str) -> bytes:
    """Text of the command line as bytes, with escapes such as a tab's as what they mean."""
    try:
        return text.encode().decode("unicode_escape").encode("latin-1")
    except UnicodeError:
        raise typer.BadParameter(
            f"{text!r}: escapes are \\n, \\t, \\xHH and their like, a backslash is \\\\"
        ) from None


def read_settings(pairs: list[str] | None) -> dict[str, str]:
    """`key=value` arguments."""
    settings: dict[str, str] = {}
    for pair in pairs or ():
        key, found, value = pair.partition("=")
        if not found:
            raise typer.BadParameter(f"{pair!r} is not key=value")
        settings[key.strip()] = value
    return settings
