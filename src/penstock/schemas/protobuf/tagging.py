"""Tags in a Protobuf schema: in Confluent's option of the message or field that the path names.

`Order.Line.price` is a path: messages in one another, without the package, and a field at its end.
"""

from penstock.schemas.protobuf.rewriting import Options, Rewriter, Scope
from penstock.schemas.protobuf.tree import (
    Aggregate,
    Field,
    ListValue,
    Message,
    Option,
    Part,
    ProtoFile,
    Text,
    Value,
)
from penstock.schemas.tags import Entity, Tagging

_MESSAGE_META = "confluent.message_meta"
_FIELD_META = "confluent.field_meta"
_TAGS = "tags"


def tagged(file: ProtoFile, tagging: Tagging) -> ProtoFile:
    """The file with its tags changed."""
    tagger = _Tagger(tagging)
    changed = tagger.file(file)
    for entity in tagging.entities:
        if _key(entity) not in tagger.found:
            raise entity.missing()
    return changed


def _key(entity: Entity) -> tuple[bool, Scope]:
    return entity.is_record, tuple(entity.words)


class _Tagger(Rewriter):
    def __init__(self, tagging: Tagging) -> None:
        self._tagging = tagging
        self._entities: dict[tuple[bool, Scope], list[Entity]] = {}
        for entity in tagging.entities:  # with a dot in front or without, it is one place
            self._entities.setdefault(_key(entity), []).append(entity)
        self.found: set[tuple[bool, Scope]] = set()

    def message(self, message: Message, scope: Scope) -> Message:
        changed = super().message(message, scope)
        return changed._replace(
            options=self._changed(changed.options, (True, scope), _MESSAGE_META)
        )

    def field(self, field: Field, scope: Scope) -> Field:
        place = (False, (*scope, field.name))
        return field._replace(options=self._changed(field.options, place, _FIELD_META))

    def _changed(self, options: Options, place: tuple[bool, Scope], name: str) -> Options:
        entities = self._entities.get(place)
        if entities is None:
            return options
        self.found.add(place)
        entries: dict[str, Value] = {}
        others = []
        for option in options:
            if option.parts == (Part(name, is_extension=True),) and isinstance(
                option.value, Aggregate
            ):
                entries.update(option.value.entries)
            else:
                others.append(option)
        tags = _texts(entries.pop(_TAGS, None))
        for entity in entities:
            tags = self._tagging.changed(entity, tags)
        if tags:
            entries[_TAGS] = ListValue(tuple(map(Text, tags)))
        if not entries:
            return tuple(others)
        meta = Option((Part(name, is_extension=True),), Aggregate(tuple(entries.items())))
        return (*others, meta)


def _texts(value: Value | None) -> list[str]:
    if isinstance(value, ListValue):
        return [one.value for one in value.items if isinstance(one, Text)]
    return [value.value] if isinstance(value, Text) else []
