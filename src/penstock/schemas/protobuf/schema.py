"""A Protobuf schema as the registry handles it. Immutable; what is costly is computed once.

Tags in a Protobuf schema: in Confluent's option of the message or field that the path names.

`Order.Line.price` is a path: messages in one another, without the package, and a field at its end.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final

from penstock.schemas.model import (
    NO_IMPORTS,
    BudgetExceededError,
    Difference,
    Entity,
    Imports,
    InvalidSchemaError,
    Policy,
    Reference,
    SchemaType,
    Tagging,
    bounded,
    check_encoding,
    uncheckable,
)
from penstock.schemas.protobuf.canonical import print_proto
from penstock.schemas.protobuf.compiler import (
    SCHEMA_NAME,
    check_bounds,
    check_import_name,
    compile_schema,
)
from penstock.schemas.protobuf.descriptors import read_base64
from penstock.schemas.protobuf.differences import ComparedSchema, incompatible_changes
from penstock.schemas.protobuf.normalize import normal_form
from penstock.schemas.protobuf.parse import CHARACTERS_MAX, read_proto
from penstock.schemas.protobuf.rewrite import (
    Options,
    Rewriter,
    Scope,
    for_the_compiler,
    needs_respelling,
    without_default_json_names,
    without_extensions,
)
from penstock.schemas.protobuf.tree import (
    Aggregate,
    Field,
    ListValue,
    Message,
    NamePart,
    Option,
    ProtoFile,
    Text,
    Value,
)
from penstock.schemas.protobuf.types import Names, Shapes
from penstock.schemas.protobuf.well_known import META, WRITTEN_OUT, known_text

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
            if option.parts == (NamePart(name, is_extension=True),) and isinstance(
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
        meta = Option((NamePart(name, is_extension=True),), Aggregate(tuple(entries.items())))
        return (*others, meta)


def _texts(value: Value | None) -> list[str]:
    if isinstance(value, ListValue):
        return [one.value for one in value.items if isinstance(one, Text)]
    return [value.value] if isinstance(value, Text) else []


IMPORTS_MAX: Final = 1000
_META_OPTION: Final = re.compile(r"\(\s*\.?\s*confluent\s*\.")


def parse(
    text: str,
    references: tuple[Reference, ...] = (),
    imports: Imports = NO_IMPORTS,
    *,
    strict: bool = True,
) -> "ProtobufSchema":
    """The schema in `text`: .proto text, or a FileDescriptorProto in base64.

    Not strict is for schemas that are stored already: the compiler is not asked, and an import
    that nobody has is left alone.
    """
    source = _read(text)
    files = _imported_files(source, imports, strict=strict)
    schema = ProtobufSchema(source, references, files)
    if strict:
        schema.check()
    return schema


class ProtoSource:
    """One file: its tree, and a text of it that the compiler takes."""

    def __init__(self, file: ProtoFile, text: str | None) -> None:
        self.file = file
        self._text = text
        # The peer takes its own options from who does not import them; the compiler does not.
        self.lacks_meta = (
            text is not None
            and META not in file.all_imports
            and _META_OPTION.search(text) is not None
        )

    @property
    def imports(self) -> tuple[str, ...]:
        """Every file this one needs."""
        return (*self.file.all_imports, META) if self.lacks_meta else self.file.all_imports

    def compilable(self, names: Names) -> str:
        """The text as written where there is one, so that errors name lines people can find."""
        if self._text is not None and not needs_respelling(self.file):
            text = self._text
        else:
            text = print_proto(for_the_compiler(self.file, names))
        return f'{text}\nimport "{META}";\n' if self.lacks_meta else text


def _read(text: str) -> ProtoSource:
    check_encoding(text)
    try:
        return ProtoSource(read_proto(text), text)
    except InvalidSchemaError:
        file = read_base64(text) if len(text) <= CHARACTERS_MAX else None
        if file is None:
            raise
        return ProtoSource(file, None)


@lru_cache(maxsize=64)
def _known_source(name: str) -> ProtoSource | None:
    text = known_text(name)
    return ProtoSource(read_proto(text), text) if text is not None else None


def _imported_files(root: ProtoSource, imports: Imports, *, strict: bool) -> dict[str, ProtoSource]:
    """Everything a file reaches, by the name it is imported by."""
    found: dict[str, ProtoSource] = {}
    waiting = list(root.imports)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        source = _import(name, imports)
        if source is None:
            if strict:
                raise InvalidSchemaError(f'the import "{name}" is not among the references')
            continue
        found[name] = source
        waiting += source.imports
        if len(found) > IMPORTS_MAX:
            raise InvalidSchemaError(f"more than {IMPORTS_MAX} files are imported")
    return found


def _import(name: str, imports: Imports) -> ProtoSource | None:
    check_import_name(name)
    if name not in imports:
        return _known_source(name)
    try:
        return _read(imports[name])
    except InvalidSchemaError as wrong:
        raise InvalidSchemaError(f'in the import "{name}": {wrong}') from None


class ProtobufSchema:
    """A parsed Protobuf schema, with the files it imports."""

    type: Final = SchemaType.PROTOBUF

    def __init__(
        self,
        source: ProtoSource,
        references: tuple[Reference, ...],
        imports: Mapping[str, ProtoSource],
    ) -> None:
        self._source = source
        self.references = references
        self._imports = imports

    @property
    def file(self) -> ProtoFile:
        """The tree."""
        return self._source.file

    @cached_property
    def names(self) -> Names:
        """What the names in the file mean."""
        files = {name: source.file for name, source in self._imports.items()}
        return Names(self.file, files)

    @cached_property
    def canonical(self) -> str:
        """The text as the registry stores it."""
        return print_proto(self.file)

    @property
    def name(self) -> str | None:
        """The full name of the first message, or of the first enum where there is none."""
        file = self._file_of_types
        names = [one.name for one in file.messages] or [one.name for one in file.enums]
        if not names:
            return None
        return f"{file.package}.{names[0]}" if file.package else names[0]

    def normalized(self) -> "ProtobufSchema":
        """The same schema with everything that has no meaning put in one order."""
        file = normal_form(self.file, self.names)
        references = tuple(sorted(set(self.references)))
        return ProtobufSchema(ProtoSource(file, None), references, self._imports)

    def tagged(self, tagging: Tagging) -> "ProtobufSchema":
        """The same schema with other tags."""
        text = print_proto(tagged(self.file, tagging))
        source = ProtoSource(read_proto(text), text)
        files = {**self._imports, **_imported_files(source, {}, strict=False)}
        return ProtobufSchema(source, self.references, files)

    def formatted(self, form: str) -> str:
        """`serialized` is the FileDescriptorProto in base64; `ignore_extensions` drops options."""
        match form.lower():
            case "serialized":
                raw = without_default_json_names(self.descriptors[-1]).SerializeToString()
                return base64.b64encode(raw).decode()
            case "ignore_extensions":
                return print_proto(without_extensions(self.file))
            case _:
                return self.canonical

    def equivalent(self, other: "ProtobufSchema") -> bool:
        """Whether registering one while the other is there gives the same version."""
        return self.canonical == other.canonical

    def incompatibilities(
        self, writer: "ProtobufSchema", policy: Policy = Policy.STRICT
    ) -> tuple[Difference, ...]:
        """Why this schema cannot read what `writer` wrote. Protobuf knows one policy only."""
        try:
            return bounded(incompatible_changes(writer.side, self.side))
        except BudgetExceededError as reason:
            return (uncheckable(reason, "#/"),)
        except RecursionError:
            return (uncheckable("imported types refer to imported types too deeply", "#/"),)

    @cached_property
    def side(self) -> ComparedSchema:
        """This schema as one side of a comparison."""
        shapes = Shapes(self.file, self.names, self.references)
        return ComparedSchema(self.file, self.names, self.references, shapes)

    def check(self) -> None:
        """Ask the compiler, which raises InvalidSchemaError with all it found wrong."""
        for source in (self._source, *self._imports.values()):
            check_bounds(source.file)
        if self.descriptors[-1].name != SCHEMA_NAME:
            raise InvalidSchemaError("the compiler gave no descriptor of the schema")

    @cached_property
    def descriptors(self) -> tuple[Any, ...]:
        """FileDescriptorProtos of the imports, in an order to load them in; the schema's last."""
        texts = {
            name: source.compilable(self._names_in(source))
            for name, source in self._imports.items()
            if source is not _known_source(name) or name in WRITTEN_OUT  # else it has the file
        }
        return compile_schema(self._source.compilable(self.names), texts)

    def _names_in(self, source: ProtoSource) -> Names:
        return Names(source.file, {name: one.file for name, one in self._imports.items()})

    @property
    def _file_of_types(self) -> ProtoFile:
        """The file itself, or the one it hands on if it only hands on one."""
        file = self.file
        is_empty = not (file.messages or file.enums or file.services or file.extends)
        if is_empty and not file.imports and len(file.public_imports) == 1:
            source = self._imports.get(file.public_imports[0])
            if source is not None and (source.file.messages or source.file.enums):
                return source.file
        return file

    def message_at(self, indexes: Sequence[int]) -> str:
        """The full name of the message at a path of positions; the first for an empty path."""
        file = self._file_of_types
        names = [file.package] if file.package else []
        messages = file.messages
        for index in indexes or (0,):
            if not 0 <= index < len(messages):
                raise InvalidSchemaError(f"there is no message at {list(indexes)}")
            names.append(messages[index].name)
            messages = messages[index].nested
        return ".".join(names)

    def has_message(self, full_name: str) -> bool:
        """Whether there is a message of that full name."""
        try:
            return self.message_at(self.indexes_of(full_name)) == full_name
        except InvalidSchemaError:
            return False

    def indexes_of(self, full_name: str) -> tuple[int, ...]:
        """The path of positions of a message, by its full name."""
        file = self._file_of_types
        local_name = full_name.removeprefix(f"{file.package}.") if file.package else full_name
        indexes: list[int] = []
        messages = file.messages
        for word in local_name.split("."):
            index = _position(messages, word)
            if index is None:
                raise InvalidSchemaError(f'there is no message "{full_name}"')
            indexes.append(index)
            messages = messages[index].nested
        return tuple(indexes)


def _position(messages: tuple[Message, ...], name: str) -> int | None:
    return next((index for index, one in enumerate(messages) if one.name == name), None)
