"""The page that lists every setting, generated from the rows. Never touches a file."""

from collections.abc import Mapping
from typing import Final

from penstock.config.broker_keys import (
    BROKER_KEYS,
    CLUSTER_DEFAULTS,
    CLUSTER_VOTERS_MIN,
    GROUP_KEYS,
)
from penstock.config.key_rows import INT_MAX, LONG_MAX, Key, Value
from penstock.config.topic_keys import TOPIC_KEYS

_HEAD: Final = """\
# Settings

Generated from the tables in `src/penstock/config/` by `pytest tests/config --rewrite`.

Names and defaults are Apache Kafka's where it has the key; keys of our own begin with `penstock.`.
The effective value of a topic's setting is the first of: the topic's own value, the value set at
run time for its broker, the value set at run time for all brokers, the value the broker was started
with (`--set key=value`, or a properties file given with `--config`), the default. A setting that is
not on this page is refused, with `--set` and in a file: from a file that was written for Apache
Kafka, keep only the settings that are listed here. There are no `ssl.*`, `sasl.*` or `authorizer.*`
settings, because the broker has no TLS, no logins and no ACLs.
"""


def configuration_page() -> str:
    """The whole page."""
    topic = "Set with `penstock topic create -c`, `penstock topic alter -c`, or any admin client."
    group = "Set with any admin client, for the resource type `GROUP`."
    cluster = ", ".join(f"`{key}` {value}" for key, value in CLUSTER_DEFAULTS.items())
    broker = (
        'Set at start. Those marked "at run time" can also be changed while the broker runs, for '
        "one broker or for all brokers. A broker that is started with "
        f"{CLUSTER_VOTERS_MIN} or more `--voters` has other defaults: {cluster}. A cluster stores "
        'what is marked "for all brokers" when it is created; later starts do not change it, but '
        "`penstock cluster alter -c` does."
    )
    return "\n".join(
        (
            _HEAD,
            *_section("Topics", topic, TOPIC_KEYS, with_broker_key=True),
            *_section("Groups", group, GROUP_KEYS, with_broker_key=True),
            *_section("Brokers", broker, BROKER_KEYS, with_broker_key=False),
        )
    )


def _section(title: str, text: str, keys: Mapping[str, Key], *, with_broker_key: bool) -> list[str]:
    last = "Broker key" if with_broker_key else "Changed"
    lines = [f"## {title}", "", text, "", f"| Key | Default | Allowed | Meaning | {last} |"]
    lines.append("|---|---|---|---|---|")
    for key in keys.values():
        cell = _synonyms(key) if with_broker_key else key.update_mode.value
        row = (f"`{key.name}`", _default(key.default), _allowed(key), key.doc, cell)
        lines.append(f"| {' | '.join(row)} |")
    return [*lines, ""]


def _default(value: Value) -> str:
    match value:
        case None:
            return "not set"
        case ():
            return "empty"
        case tuple():
            return f"`{','.join(value)}`"
        case bool():
            return "`true`" if value else "`false`"
        case _ if value in (LONG_MAX, INT_MAX):
            return f"`{value}` (no limit)"
        case _:
            return f"`{value}`"


def _allowed(key: Key) -> str:
    if key.choices:
        return ", ".join(f"`{choice}`" for choice in key.choices)
    value_type = key.value_type.name.lower()
    if key.minimum is not None and key.maximum is not None:
        return f"{value_type}, {key.minimum} to {key.maximum}"
    return value_type if key.minimum is None else f"{value_type}, at least {key.minimum}"


def _synonyms(key: Key) -> str:
    return ", ".join(f"`{synonym}`" for synonym in key.synonyms)
