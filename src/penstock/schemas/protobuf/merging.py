"""Options that are set in several steps, made one: `(o).a = 1, (o).b = 2` says `(o) = {a, b}`."""

from collections.abc import Iterable, Iterator

from penstock.schemas.protobuf.names import Names
from penstock.schemas.protobuf.rewriting import Scope
from penstock.schemas.protobuf.tree import Aggregate, Field, ListValue, Message, Option, Value


class Merger:
    """Merges options of one name, once their extension is known and not repeated."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def merged(self, options: Iterable[Option], scope: Scope) -> Iterator[Option]:
        """The options in their order, those of one name as one where they may be."""
        waiting: Option | None = None
        for option in options:
            field = self._singular_extension(option)
            if waiting is not None and field is not None and waiting.name == option.name:
                value = self._joined(field, waiting.value, option.value, scope)
                waiting = option._replace(value=value)
                continue
            if waiting is not None:
                yield waiting
            waiting = option
        if waiting is not None:
            yield waiting

    def _singular_extension(self, option: Option) -> Field | None:
        if not option.is_custom:
            return None
        full_name = self._names.resolved_extension(f".{option.name}", ())
        if full_name is None:
            return None
        field = self._names.extension_of(full_name)
        return None if field.label == "repeated" else field

    def _joined(self, field: Field, first: Value, second: Value, scope: Scope) -> Value:
        if isinstance(first, Aggregate) and isinstance(second, Aggregate):
            return self._joined_entries(field, first, second, scope)
        return second  # set twice: the last word counts

    def _joined_entries(
        self, container: Field, first: Aggregate, second: Aggregate, scope: Scope
    ) -> Aggregate:
        message = self._message_of(container, scope)
        entries = dict(first.entries)
        for key, value in second.entries:
            if key in entries:
                entries[key] = self._joined_values(
                    _member(message, key), entries[key], value, scope
                )
            else:
                entries[key] = value
        return Aggregate(tuple(sorted(entries.items(), key=lambda entry: entry[0])))

    def _joined_values(
        self, field: Field | None, first: Value, second: Value, scope: Scope
    ) -> Value:
        if field is not None and field.label != "repeated":
            return self._joined(field, first, second, scope)
        items = dict.fromkeys((*_listed(first), *_listed(second)))
        return ListValue(tuple(items)) if len(items) > 1 else next(iter(items))

    def _message_of(self, field: Field, scope: Scope) -> Message | None:
        if not isinstance(field.type, str):
            return None
        full_name = self._names.resolved(field.type, scope)
        element = self._names.type_of(full_name).element if full_name is not None else None
        return element if isinstance(element, Message) else None


def _listed(value: Value) -> tuple[Value, ...]:
    return value.items if isinstance(value, ListValue) else (value,)


def _member(message: Message | None, name: str) -> Field | None:
    if message is None:
        return None
    fields = (*message.fields, *(field for oneof in message.oneofs for field in oneof.fields))
    return next((field for field in fields if field.name == name), None)
