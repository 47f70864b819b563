"""A Protobuf schema for the registry, the client and the gate. Immutable; costly parts are cached.

Tags are in Confluent's option of the message or field that a path names. `Order.Line.price` is such
a path: nested messages without the package, and a field at the end.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final

from penstock.schemas.compare_limits import first_differences
from penstock.schemas.model import (
    NO_IMPORTS,
    Difference,
    Entity,
    Imports,
    InvalidSchemaError,
    Policy,
    Reference,
    SchemaType,
    Tagging,
    check_encoding,
    normalized_references,
)
from penstock.schemas.protobuf.canonical import print_proto
from penstock.schemas.protobuf.compiler import (
    SCHEMA_NAME,
    check_import_name,
    check_limits,
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
    for_compiler,
    needs_rewriting,
    without_default_json_names,
    without_extensions,
)
from penstock.schemas.protobuf.tree import (
    Field,
    ListValue,
    Message,
    MessageValue,
    NamePart,
    Option,
    OptionValue,
    ProtoFile,
    StringValue,
)
from penstock.schemas.protobuf.types import Names, Shapes
from penstock.schemas.protobuf.well_known import META, WRITTEN_OUT, known_text

IMPORTS_MAX: Final = 1000
_META_OPTION: Final = re.compile(r"\(\s*\.?\s*confluent\s*\.")
_MESSAGE_META: Final = "confluent.message_meta"
_FIELD_META: Final = "confluent.field_meta"
_TAGS: Final = "tags"


def parse(
    text: str,
    references: tuple[Reference, ...] = (),
    imports: Imports = NO_IMPORTS,
    *,
    strict: bool = True,
) -> "ProtobufSchema":
    """The schema in `text`: .proto text, or a FileDescriptorProto in base64.

    `strict=False` is for schemas that are stored already: the compiler does not check them, and an
    unknown import is ignored.
    """
    source = _read(text)
    files = _imported_files(source, imports, strict=strict)
    schema = ProtobufSchema(source, references, files)
    if strict:
        schema.check()
    return schema


class ProtoSource:
    """One file: its tree, and a text that the compiler accepts."""

    def __init__(self, file: ProtoFile, text: str | None) -> None:
        self.file = file
        self._text = text
        # Confluent accepts its own options without their import; the compiler does not.
        self.needs_meta: Final = (
            text is not None
            and META not in file.all_imports
            and _META_OPTION.search(text) is not None
        )

    @property
    def imports(self) -> tuple[str, ...]:
        """Every file that this one needs."""
        return (*self.file.all_imports, META) if self.needs_meta else self.file.all_imports

    def compilable(self, names: Names) -> str:
        """The original text if possible, so that errors have the lines of that text."""
        if self._text is not None and not needs_rewriting(self.file):
            text = self._text
        else:
            text = print_proto(for_compiler(self.file, names))
        return f'{text}\nimport "{META}";\n' if self.needs_meta else text


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
    """Everything that a file imports, directly or not, by import name."""
    files: dict[str, ProtoSource] = {}
    waiting = list(root.imports)
    while waiting:
        name = waiting.pop()
        if name in files:
            continue
        source = _import(name, imports)
        if source is None:
            if strict:
                raise InvalidSchemaError(f'the import "{name}" is not among the references')
            continue
        files[name] = source
        waiting += source.imports
        if len(files) > IMPORTS_MAX:
            raise InvalidSchemaError(f"more than {IMPORTS_MAX} files are imported")
    return files


def _import(name: str, imports: Imports) -> ProtoSource | None:
    check_import_name(name)
    if name not in imports:
        return _known_source(name)
    try:
        return _read(imports[name])
    except InvalidSchemaError as error:
        raise InvalidSchemaError(f'in the import "{name}": {error}') from None


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
        """The types and extensions that the file can name."""
        return self._names_in(self._source)

    @cached_property
    def canonical(self) -> str:
        """The text as the registry stores it."""
        return print_proto(self.file)

    @property
    def name(self) -> str | None:
        """The full name of the first message, or of the first enum in a file without messages."""
        file = self._file_of_types
        names = [element.name for element in file.messages or file.enums]
        if not names:
            return None
        return f"{file.package}.{names[0]}" if file.package else names[0]

    def normalized(self) -> "ProtobufSchema":
        """The same schema with everything that has no meaning in one fixed order."""
        source = ProtoSource(normal_form(self.file, self.names), None)
        return ProtobufSchema(source, normalized_references(self.references), self._imports)

    def tagged(self, tagging: Tagging) -> "ProtobufSchema":
        """The same schema with tags added or removed."""
        text = print_proto(_Tagger(tagging).tagged(self.file))
        source = ProtoSource(read_proto(text), text)
        files = {**self._imports, **_imported_files(source, {}, strict=False)}
        return ProtobufSchema(source, self.references, files)

    def formatted(self, form: str, /) -> str:
        """`serialized`: the FileDescriptorProto in base64; `ignore_extensions`: without options."""
        match form.lower():
            case "serialized":
                raw = without_default_json_names(self.descriptors[-1]).SerializeToString()
                return base64.b64encode(raw).decode()
            case "ignore_extensions":
                return print_proto(without_extensions(self.file))
            case _:
                return self.canonical

    def equivalent(self, other: "ProtobufSchema") -> bool:
        """Whether the registry treats both as one version."""
        return self.canonical == other.canonical

    def incompatibilities(
        self, writer: "ProtobufSchema", _policy: Policy = Policy.STRICT, /
    ) -> tuple[Difference, ...]:
        """Why this schema cannot read what `writer` wrote; the policy is for JSON Schema."""
        return first_differences(lambda: incompatible_changes(writer.compared, self.compared), "#/")

    @cached_property
    def compared(self) -> ComparedSchema:
        """This schema in the form that is compared."""
        shapes = Shapes(self.file, self.names, self.references)
        return ComparedSchema(self.file, self.names, self.references, shapes)

    def check(self) -> None:
        """Raise InvalidSchemaError with the compiler's errors if the schema is not valid."""
        for source in (self._source, *self._imports.values()):
            check_limits(source.file)
        if self.descriptors[-1].name != SCHEMA_NAME:
            raise InvalidSchemaError("the compiler made no descriptor of the schema")

    @cached_property
    def descriptors(self) -> tuple[Any, ...]:
        """FileDescriptorProtos of the imports in loading order; the schema's own is the last."""
        texts = {
            name: source.compilable(self._names_in(source))
            for name, source in self._imports.items()
            # The compiler has the others.
            if source is not _known_source(name) or name in WRITTEN_OUT
        }
        return compile_schema(self._source.compilable(self.names), texts)

    def _names_in(self, source: ProtoSource) -> Names:
        return Names(source.file, {name: known.file for name, known in self._imports.items()})

    @property
    def _file_of_types(self) -> ProtoFile:
        """The file itself, or its only public import if it contains nothing else."""
        file = self.file
        is_empty = not (file.messages or file.enums or file.services or file.extends)
        if is_empty and not file.imports and len(file.public_imports) == 1:
            source = self._imports.get(file.public_imports[0])
            if source is not None and (source.file.messages or source.file.enums):
                return source.file
        return file

    def message_at(self, indexes: Sequence[int]) -> str:
        """The full name of the message at a path of indexes; of the first for an empty path."""
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
        """Whether there is a message of this full name."""
        try:
            return self.message_at(self.indexes_of(full_name)) == full_name
        except InvalidSchemaError:
            return False

    def indexes_of(self, full_name: str) -> tuple[int, ...]:
        """The path of indexes of a message, by its full name."""
        file = self._file_of_types
        local_name = full_name.removeprefix(f"{file.package}.") if file.package else full_name
        indexes: list[int] = []
        messages = file.messages
        for word in local_name.split("."):
            names = [message.name for message in messages]
            if word not in names:
                raise InvalidSchemaError(f'there is no message "{full_name}"')
            indexes.append(names.index(word))
            messages = messages[indexes[-1]].nested
        return tuple(indexes)


_EntityKey = tuple[bool, Scope]  # is it a message, and its path


class _Tagger(Rewriter):
    """Adds and removes tags in one file."""

    def __init__(self, tagging: Tagging) -> None:
        self._tagging = tagging
        self._entities: dict[_EntityKey, list[Entity]] = {}
        for entity in tagging.entities:  # with a leading dot or without, it is the same entity
            key = (entity.is_record, tuple(entity.steps))
            self._entities.setdefault(key, []).append(entity)
        self._unmatched = dict(self._entities)

    def tagged(self, file: ProtoFile) -> ProtoFile:
        """The file with its tags changed."""
        changed = self.file(file)
        for entities in self._unmatched.values():
            raise entities[0].not_found()
        return changed

    def message(self, message: Message, scope: Scope, /) -> Message:
        changed = super().message(message, scope)
        options = self._changed(changed.options, (True, scope), _MESSAGE_META)
        return changed._replace(options=options)

    def field(self, field: Field, scope: Scope, /) -> Field:
        key = (False, (*scope, field.name))
        return field._replace(options=self._changed(field.options, key, _FIELD_META))

    def _changed(self, options: Options, key: _EntityKey, name: str) -> Options:
        entities = self._entities.get(key)
        if entities is None:
            return options
        self._unmatched.pop(key, None)
        parts = (NamePart(name, is_extension=True),)
        entries: dict[str, OptionValue] = {}
        others = []
        for option in options:
            if option.parts == parts and isinstance(option.value, MessageValue):
                entries.update(option.value.entries)
            else:
                others.append(option)
        tags = _texts(entries.pop(_TAGS, None))
        for entity in entities:
            tags = self._tagging.new_tags(entity, tags)
        if tags:
            entries[_TAGS] = ListValue(tuple(map(StringValue, tags)))
        if not entries:
            return tuple(others)
        return (*others, Option(parts, MessageValue(tuple(entries.items()))))


def _texts(value: OptionValue | None) -> list[str]:
    if isinstance(value, ListValue):
        return [item.value for item in value.items if isinstance(item, StringValue)]
    return [value.value] if isinstance(value, StringValue) else []
