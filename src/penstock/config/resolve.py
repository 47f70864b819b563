"""Effective values: the layers that a key is looked up in, most specific first, and frozen views.

A value is text until the key that owns it parses it. Every layer holds only values that were
checked before they were stored, so reading an effective value never fails. A view is a frozen
dataclass whose fields name their rows; it has no defaults, because a default stands in its row.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from types import NoneType
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from penstock.config.key_rows import LONG_MAX, Key, Synonym, Value, ValueType, write_value
from penstock.errors import ErrorCode, Refused

View = TypeVar("View")


class ConfigSource(IntEnum):
    """The layer that a value comes from, numbered as in DescribeConfigs."""

    TOPIC = 1
    BROKER = 2  # set at run time, for one broker
    BROKER_DEFAULT = 3  # set at run time, for all brokers
    STATIC_BROKER = 4  # given at start
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Layers(NamedTuple):
    """The settings of a broker, by layer."""

    broker: Mapping[str, str]
    defaults: Mapping[str, str]
    static: Mapping[str, str]

    def settings_of(self, name: str) -> list["Setting"]:
        """The setting of `name` in every layer that has one, most specific first."""
        sources = (ConfigSource.BROKER, ConfigSource.BROKER_DEFAULT, ConfigSource.STATIC_BROKER)
        return [
            Setting(name, layer[name], source)
            for layer, source in zip(self, sources, strict=True)
            if name in layer
        ]


NO_LAYERS = Layers({}, {}, {})


class Setting(NamedTuple):
    """The value of one name in one layer."""

    name: str
    value: str | None
    source: ConfigSource


def settings_by_precedence(
    key: Key, own: Mapping[str, str], own_source: ConfigSource, layers: Layers
) -> list[Setting]:
    """Every setting of the key or a synonym of it, most specific first, the default last.

    Names are those of the layers, so the unit of a synonym may differ from the key's own.
    """
    settings = [Setting(key.name, own[key.name], own_source)] if key.name in own else []
    is_broker = own_source is ConfigSource.STATIC_BROKER
    names = key.synonyms or ((Synonym(key.name),) if is_broker else ())
    for name in names:
        settings += layers.settings_of(name)
    default = key.default_text()
    if default is not None or not settings:
        default_name = str(names[0]) if names else key.name
        settings.append(Setting(default_name, default, ConfigSource.DEFAULT))
    return settings


def effective_setting(
    key: Key, own: Mapping[str, str], own_source: ConfigSource, layers: Layers
) -> Setting:
    """The setting that applies, in the key's own name and unit."""
    first = settings_by_precedence(key, own, own_source, layers)[0]
    if first.source is ConfigSource.DEFAULT or first.name == key.name:
        return first._replace(name=key.name)
    factor = next(synonym.factor for synonym in key.synonyms if synonym == first.name)
    if factor == 1 or first.value is None:
        return first._replace(name=key.name)
    count = int(first.value)  # -1 is without limit in any unit
    return Setting(key.name, str(count if count < 0 else count * factor), first.source)


def effective_value(
    key: Key, own: Mapping[str, str], own_source: ConfigSource, layers: Layers
) -> Value:
    """The value that applies, parsed."""
    setting = effective_setting(key, own, own_source, layers)
    if setting.source is ConfigSource.DEFAULT or setting.value is None:
        return key.default
    return key.parse(setting.value)


class Values:
    """The effective values of one resource, looked up by name."""

    def __init__(
        self, keys: Mapping[str, Key], own: Mapping[str, str], source: ConfigSource, layers: Layers
    ) -> None:
        self._keys = keys
        self._own = own
        self._source = source
        self._layers = layers

    def __getitem__(self, name: str) -> Value:
        return effective_value(self._keys[name], self._own, self._source, self._layers)

    def integer(self, name: str) -> int:
        value = self[name]
        assert isinstance(value, int)
        return value

    def limit(self, name: str) -> int | None:
        """An integer; None for both of Kafka's ways to write "without limit"."""
        return _limit(self.integer(name))

    def text(self, name: str) -> str:
        value = self[name]
        assert isinstance(value, str)
        return value

    def items(self, name: str) -> tuple[str, ...]:
        value = self[name]
        assert isinstance(value, tuple)
        return value


class Row(NamedTuple):
    """Annotates a field of a view: the key that fills it, and how its value is converted."""

    key: str
    convert: Callable[[Any], object] | None = None


def contains(item: str) -> Callable[[tuple[str, ...]], bool]:
    """Converts a list to whether it has the item."""
    return lambda items: item in items


def view(view_class: type[View], values: Values, **given: object) -> View:
    """A frozen view filled from the rows that its fields name, except for fields `given`."""
    filled = {
        name: _converted(values[row.key], row, field_type)
        for name, row, field_type in _rows(view_class)
        if name not in given
    }
    return view_class(**filled, **given)


def _rows(view_class: type) -> Iterator[tuple[str, Row, Any]]:
    """Name, row and plain type of every field that names a row."""
    for name, hint in get_type_hints(view_class, include_extras=True).items():
        if get_origin(hint) is Annotated:
            yield name, hint.__metadata__[0], hint.__origin__


def _converted(value: Value, row: Row, field_type: Any) -> object:
    if row.convert is not None:
        return row.convert(value)
    if isinstance(value, int) and NoneType in get_args(field_type):
        return _limit(value)
    return value


def _limit(value: int) -> int | None:
    return None if value < 0 or value == LONG_MAX else value


def check_overrides(keys: Mapping[str, Key], overrides: Mapping[str, str], scope: str) -> None:
    """Refuse a name that is not in the table, or a value that is not valid for its key."""
    for name, text in overrides.items():
        key = keys.get(name)
        if key is None:
            raise Refused(ErrorCode.invalid_config, f"Unknown {scope} config name: {name}")
        key.parse(text)


class ChangeKind(IntEnum):
    """The operations of IncrementalAlterConfigs, numbered as on the wire."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """One change of one key."""

    name: str
    kind: ChangeKind
    value: str | None


def apply_changes(
    keys: Mapping[str, Key],
    overrides: Mapping[str, str],
    changes: tuple[ConfigChange, ...],
    *,
    scope: str,
    inherited: Layers,
) -> dict[str, str]:
    """The overrides after the changes; Refused when a change is not possible for its key."""
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
            after[change.name] = _edit_list(key, after, change, inherited)
    return after


def _edit_list(
    key: Key, overrides: Mapping[str, str], change: ConfigChange, inherited: Layers
) -> str:
    """The effective list with items added or removed."""
    if key.value_type is not ValueType.LIST:
        raise Refused(
            ErrorCode.invalid_config,
            f"Can't {change.kind.name} to key {key.name} because its type is not LIST.",
        )
    before = effective_value(key, overrides, ConfigSource.TOPIC, inherited)
    given = key.parse(change.value or "")
    assert isinstance(before, tuple)
    assert isinstance(given, tuple)
    if change.kind is ChangeKind.APPEND:
        after = (*before, *(item for item in given if item not in before))
    else:
        after = tuple(item for item in before if item not in given)
    return write_value(after) or ""
