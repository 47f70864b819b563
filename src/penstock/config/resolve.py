"""Which value counts: the layers a key is looked up in, most specific first.

A value is text until the key that owns it parses it. Every layer holds only values that were
checked before they were stored, so reading an effective value cannot be refused.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from penstock.config.key_rows import LONG_MAX, Key, Kind, Synonym, Value, write_value
from penstock.errors import ErrorCode, Refused
from penstock.model import Millis


class Source(IntEnum):
    """Where a value comes from, numbered as DescribeConfigs numbers it."""

    TOPIC = 1
    BROKER = 2  # set at run time, for one broker
    BROKER_DEFAULT = 3  # set at run time, for all brokers
    STATIC_BROKER = 4  # given at start
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Layers(NamedTuple):
    """What a broker's own settings are, by who set them."""

    broker: Mapping[str, str]
    defaults: Mapping[str, str]
    static: Mapping[str, str]

    def found(self, name: str) -> list["Setting"]:
        """Every layer that sets `name`, most specific first."""
        sources = (Source.BROKER, Source.BROKER_DEFAULT, Source.STATIC_BROKER)
        return [
            Setting(name, layer[name], source)
            for layer, source in zip(self, sources, strict=True)
            if name in layer
        ]


NO_LAYERS = Layers({}, {}, {})


class Setting(NamedTuple):
    """One value of one name in one place."""

    name: str
    value: str | None
    source: Source


def chain(key: Key, own: Mapping[str, str], own_source: Source, layers: Layers) -> list[Setting]:
    """Every place that sets the key or a synonym of it, most specific first, the default last.

    Names are those the places know, so the unit of a synonym may differ from the key's own.
    """
    found = [Setting(key.name, own[key.name], own_source)] if key.name in own else []
    names = key.synonyms or ((Synonym(key.name),) if own_source is Source.STATIC_BROKER else ())
    for name in names:
        found += layers.found(name)
    default = key.default_text()
    if default is not None or not found:
        found.append(Setting(str(names[0]) if names else key.name, default, Source.DEFAULT))
    return found


def current(key: Key, own: Mapping[str, str], own_source: Source, layers: Layers) -> Setting:
    """The setting that counts, in the key's own name and unit."""
    first = chain(key, own, own_source, layers)[0]
    if first.source is Source.DEFAULT or first.name == key.name:
        return first._replace(name=key.name)
    factor = next(synonym.factor for synonym in key.synonyms if synonym == first.name)
    if factor == 1 or first.value is None:
        return first._replace(name=key.name)
    count = int(first.value)  # -1 is without limit in any unit
    return Setting(key.name, str(count if count < 0 else count * factor), first.source)


def effective(key: Key, own: Mapping[str, str], own_source: Source, layers: Layers) -> Value:
    """The value that counts, parsed."""
    setting = current(key, own, own_source, layers)
    if setting.source is Source.DEFAULT or setting.value is None:
        return key.default
    return key.parse(setting.value)


class Values:
    """The effective values of one resource, read when asked for; kinds are the caller's word."""

    def __init__(
        self, keys: Mapping[str, Key], own: Mapping[str, str], source: Source, layers: Layers
    ) -> None:
        self._keys = keys
        self._own = own
        self._source = source
        self._layers = layers

    def __getitem__(self, name: str) -> Value:
        return effective(self._keys[name], self._own, self._source, self._layers)

    def whole(self, name: str) -> int:
        """A number without a fraction."""
        value = self[name]
        assert isinstance(value, int)
        return value

    def fraction(self, name: str) -> float:
        """A number that may have a fraction."""
        value = self[name]
        assert isinstance(value, float | int)
        return float(value)

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self[name]
        assert isinstance(value, bool)
        return value

    def text(self, name: str) -> str:
        """Text that is there."""
        value = self[name]
        assert isinstance(value, str)
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """A list."""
        value = self[name]
        assert isinstance(value, tuple)
        return value

    def millis(self, name: str) -> Millis:
        """A span of time."""
        return Millis(self.whole(name))

    def limit(self, name: str) -> int | None:
        """None for both of Kafka's ways to say "without limit"."""
        value = self.whole(name)
        return None if value < 0 or value == LONG_MAX else value

    def limit_ms(self, name: str) -> Millis | None:
        """A span of time; None is without limit."""
        value = self.limit(name)
        return None if value is None else Millis(value)


def valid_overrides(keys: Mapping[str, Key], overrides: Mapping[str, str], scope: str) -> None:
    """Refuse a name that is not in the table or a value that its key does not take."""
    for name, text in overrides.items():
        key = keys.get(name)
        if key is None:
            raise Refused(ErrorCode.invalid_config, f"Unknown {scope} config name: {name}")
        key.parse(text)


class ChangeKind(IntEnum):
    """What IncrementalAlterConfigs may ask for, numbered as on the wire."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """One change of one key."""

    name: str
    kind: ChangeKind
    value: str | None


def changed(
    keys: Mapping[str, Key],
    overrides: Mapping[str, str],
    changes: tuple[ConfigChange, ...],
    *,
    scope: str,
    inherited: Layers,
) -> dict[str, str]:
    """The overrides after the changes; Refused when a change makes no sense for its key."""
    after = dict(overrides)
    for change in changes:
        key = keys.get(change.name)
        if change.kind is ChangeKind.DELETE:
            after.pop(change.name, None)
            continue
        if key is None:
            raise Refused(ErrorCode.invalid_config, f"Unknown {scope} config name: {change.name}")
        if change.value is None:
            raise Refused(ErrorCode.invalid_request, f"{change.name} is set to null")
        if change.kind is ChangeKind.SET:
            after[change.name] = change.value
        else:
            after[change.name] = _edited(key, after, change, inherited)
    return after


def _edited(key: Key, overrides: Mapping[str, str], change: ConfigChange, inherited: Layers) -> str:
    """A list with entries added or taken away, starting from the value that counts now."""
    if key.kind is not Kind.LIST:
        raise Refused(
            ErrorCode.invalid_config,
            f"Can't {change.kind.name} to key {key.name} because its type is not LIST.",
        )
    now = effective(key, overrides, Source.TOPIC, inherited)
    given = key.parse(change.value or "")
    assert isinstance(now, tuple)
    assert isinstance(given, tuple)
    if change.kind is ChangeKind.APPEND:
        result = (*now, *(each for each in given if each not in now))
    else:
        result = tuple(each for each in now if each not in given)
    return write_value(result) or ""
