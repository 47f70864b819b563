"""Views of settings for tests: the defaults of the rows, with some fields changed."""

from typing import Final, TypeVar

from penstock.config.broker_keys import BROKER_KEYS, GROUP_KEYS
from penstock.config.resolve import NO_LAYERS, ConfigSource, Values, view
from penstock.config.topic_keys import TOPIC_KEYS
from penstock.log.settings import LogSettings

View = TypeVar("View")

_ROWS: Final = {**BROKER_KEYS, **GROUP_KEYS, **TOPIC_KEYS}
_DEFAULTS: Final = Values(_ROWS, {}, ConfigSource.TOPIC, NO_LAYERS)


def default_settings(view_class: type[View], **changes: object) -> View:
    """The view with the defaults of its rows; `changes` are fields, with or without a row."""
    return view(view_class, _DEFAULTS, **changes)


def default_log_settings(**changes: object) -> LogSettings:
    expiration_ms = _DEFAULTS.integer("producer.id.expiration.ms")
    return default_settings(LogSettings, **{"producer_id_expiration_ms": expiration_ms, **changes})
