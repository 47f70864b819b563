"""The targets of `$ref`: the schema itself and the documents that it imports, by address.

Nothing is ever fetched: an address that no document here has is an InvalidSchemaError. A document
without an address gets one below `ROOT`, so that relative references work.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

import jsonschema_rs

from penstock.schemas.json.jsontext import JsonObject, JsonValue, read_json
from penstock.schemas.model import Imports, InvalidSchemaError, parsing_reference

ROOT: Final = "http://schema.invalid/"
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_NOT_SCHEMAS: Final = frozenset({"enum", "const", "default", "examples"})
_BY_NAME: Final = frozenset(  # keywords whose members are schemas by name
    {
        "properties",
        "patternProperties",
        "definitions",
        "$defs",
        "dependencies",
        "dependentSchemas",
    }
)


class JsonDraft(Enum):
    """The drafts of JSON Schema, by their numbers in jsonschema-rs."""

    DRAFT_4 = 4
    DRAFT_6 = 6
    DRAFT_7 = 7
    DRAFT_2019_09 = 19
    DRAFT_2020_12 = 20

    @property
    def is_modern(self) -> bool:
        """Since 2019-09 keywords beside a `$ref` count, and some keywords are renamed."""
        return self in (JsonDraft.DRAFT_2019_09, JsonDraft.DRAFT_2020_12)

    @property
    def id_keyword(self) -> str:
        """The keyword that gives a schema its address."""
        return "id" if self is JsonDraft.DRAFT_4 else "$id"


_DRAFTS: Final = {
    "json-schema.org/schema": JsonDraft.DRAFT_4,
    "json-schema.org/draft-04/schema": JsonDraft.DRAFT_4,
    "json-schema.org/draft-06/schema": JsonDraft.DRAFT_6,
    "json-schema.org/draft-07/schema": JsonDraft.DRAFT_7,
    "json-schema.org/draft/2019-09/schema": JsonDraft.DRAFT_2019_09,
    "json-schema.org/draft/2020-12/schema": JsonDraft.DRAFT_2020_12,
}


def draft_of(document: JsonValue, default: JsonDraft) -> JsonDraft:
    """The draft that a document names; the default if it names none or an unknown one."""
    named = document.get("$schema") if isinstance(document, dict) else None
    if not isinstance(named, str):
        return default
    address = named.removesuffix("#").removeprefix("http://").removeprefix("https://")
    return _DRAFTS.get(address, default)


class ReferenceTarget(NamedTuple):
    """The schema that a reference points to, and its draft."""

    schema: JsonValue
    draft: JsonDraft


class _Address(NamedTuple):
    base: str
    draft: JsonDraft


class _Index:
    """Every schema with an address, and the base address of every reference."""

    def __init__(self) -> None:
        self.by_address: dict[str, ReferenceTarget] = {}
        self.bases: dict[int, _Address] = {}  # by the id of the object with the reference
        self._documents: list[JsonValue] = []  # keeps the objects alive, so that ids stay unique

    def add(self, document: JsonValue, address: str, draft: JsonDraft) -> None:
        """Add a document and all schemas in it."""
        self._documents.append(document)
        self.by_address.setdefault(address, ReferenceTarget(document, draft))
        waiting: list[tuple[JsonValue, str]] = [(document, address)]
        while waiting:
            value, base = waiting.pop()
            if isinstance(value, list):
                waiting += [(item, base) for item in value]
            if not isinstance(value, dict):
                continue
            base = self._add_names(value, base, draft)
            if reference_in(value, draft) is not None:
                self.bases[id(value)] = _Address(base, draft)
            waiting += [(member, base) for member in _schemas_in(value)]

    def _add_names(self, schema: JsonObject, base: str, draft: JsonDraft) -> str:
        """Add the addresses of one schema; returns the base address of its parts."""
        target = ReferenceTarget(schema, draft)
        own = schema.get(draft.id_keyword)
        if isinstance(own, str) and (draft.is_modern or "$ref" not in schema):
            base, anchor = urldefrag(_join(base, own))
            self.by_address.setdefault(f"{base}#{anchor}" if anchor else base, target)
        for keyword in ("$anchor", "$dynamicAnchor"):
            name = schema.get(keyword)
            if isinstance(name, str):
                self.by_address.setdefault(f"{base}#{name}", target)
        return base


@dataclass(slots=True)
class Documents:
    """The schema and its imports. Threads may share it: both may build the same index."""

    root: JsonValue
    draft: JsonDraft
    resources: dict[str, JsonValue] = field(default_factory=dict)  # address -> imported document
    base: str = ROOT
    _index: _Index | None = None  # built on first use: many schemas have no references

    def target(self, schema: JsonObject) -> ReferenceTarget:
        """The target of the `$ref` of a schema in these documents."""
        index = self._built_index()
        base, draft = index.bases.get(id(schema), _Address(self.base, self.draft))
        reference = reference_in(schema, draft)
        assert reference is not None
        target = self._find(index, base, reference)
        if target is None:
            raise InvalidSchemaError(
                f'the target of $ref "{reference}" does not exist in the schema nor in its '
                "references, and nothing is fetched"
            )
        return target

    def refuse_dangling(self) -> None:
        """Raise InvalidSchemaError for the first `$ref` whose target does not exist."""
        index = self._built_index()
        for name, document in {"": self.root, **self.resources}.items():
            for path, schema in _all_objects(document):
                if id(schema) not in index.bases:
                    continue
                try:
                    self.target(schema)
                except InvalidSchemaError as error:
                    where = f'in the reference "{name.removeprefix(ROOT)}": ' if name else ""
                    raise InvalidSchemaError(f"{where}{error} at {pointer_of(path)}") from None

    def _find(self, index: _Index, base: str, reference: str) -> ReferenceTarget | None:
        address, fragment = urldefrag(_join(base, reference))
        if address not in index.by_address:
            for part_address, part in _meta_schema(address, self.draft).items():
                index.add(part, part_address, self.draft)
        document = index.by_address.get(address)
        if document is None:
            return None
        if not fragment:
            return document
        if not fragment.startswith("/"):
            return index.by_address.get(f"{address}#{unquote(fragment)}")
        return _at_pointer(document, fragment)

    def _built_index(self) -> _Index:
        if self._index is None:
            index = _Index()
            index.add(self.root, ROOT, self.draft)
            # Before 2019-09 an `$id` beside a `$ref` counts for the whole document only.
            index.by_address.setdefault(self.base, ReferenceTarget(self.root, self.draft))
            for address, document in self.resources.items():
                index.add(document, address, draft_of(document, self.draft))
            self._index = index  # complete: other threads may use it now
        return self._index


def pointer_of(path: Iterable[str | int]) -> str:
    """A path as a JSON pointer."""
    tokens = [str(step).replace("~", "~0").replace("/", "~1") for step in path]
    return "/".join(["#", *tokens])


def _all_objects(document: JsonValue) -> Iterator[tuple[tuple[str | int, ...], JsonObject]]:
    """All objects in a document with their paths."""
    waiting: list[tuple[tuple[str | int, ...], JsonValue]] = [((), document)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict):
            yield path, value
            waiting += [((*path, key), member) for key, member in reversed(value.items())]
        elif isinstance(value, list):
            waiting += [((*path, index), item) for index, item in enumerate(value)]


def _schemas_in(schema: JsonObject) -> Iterator[JsonValue]:
    for keyword, value in schema.items():
        if keyword in _BY_NAME and isinstance(value, dict):
            yield from value.values()
        elif keyword not in _NOT_SCHEMAS:
            yield value


def reference_in(schema: JsonObject, draft: JsonDraft) -> str | None:
    """The reference in a schema, if it has one."""
    keywords = _REFERENCES if draft.is_modern else _REFERENCES[:1]
    for keyword in keywords:
        reference = schema.get(keyword)
        if isinstance(reference, str):
            return reference
    return None


def read_documents(root: JsonValue, imports: Imports) -> Documents:
    """The schema with everything that it may refer to."""
    draft = draft_of(root, JsonDraft.DRAFT_7)
    documents = Documents(root, draft)
    own = root.get(draft.id_keyword) if isinstance(root, dict) else None
    if isinstance(own, str):
        documents.base = urldefrag(_join(ROOT, own))[0]
    for name, text in imports.items():
        with parsing_reference(name):
            document = read_json(text)
        for address in dict.fromkeys(_addresses(documents.base, name)):
            documents.resources[address] = document
    return documents


def _addresses(base: str, name: str) -> Iterator[str]:
    """A relative name is resolved against the schema's own address and against `ROOT`."""
    yield urldefrag(_join(base, name))[0]
    yield urldefrag(_join(ROOT, name))[0]


def _join(base: str, reference: str) -> str:
    try:
        if reference.startswith("#"):  # urljoin drops a base such as urn:uuid:…
            return urldefrag(base)[0] + reference
        return urljoin(base, reference)
    except ValueError as error:
        raise InvalidSchemaError(f'"{reference}" is not a URI: {error}') from None


def _meta_schema(address: str, draft: JsonDraft) -> Mapping[str, JsonValue]:
    """The meta-schema of a draft and its parts by address; empty for any other address."""
    if _DRAFTS.get(address.removeprefix("http://").removeprefix("https://")) is not draft:
        return {}
    try:
        bundle: JsonObject = jsonschema_rs.bundle(
            {"$ref": address}, draft=draft.value, offline=True
        )
    except jsonschema_rs.ReferencingError:
        return {}
    parts = bundle["$defs" if draft.is_modern else "definitions"]
    return parts if isinstance(parts, dict) else {}


def _at_pointer(document: ReferenceTarget, fragment: str) -> ReferenceTarget | None:
    tokens = [
        unquote(token).replace("~1", "/").replace("~0", "~") for token in fragment[1:].split("/")
    ]
    value = document.schema
    for depth, token in enumerate(tokens):
        if isinstance(value, dict):
            if token == "$defs" and depth == 0 and not _has(value, "$defs", tokens[1:2]):
                token = "definitions"  # Confluent finds definitions under either keyword
            if token not in value:
                return None
            value = value[token]
        elif isinstance(value, list) and token.isascii() and token.isdigit():
            if int(token[:9]) >= len(value):
                return None
            value = value[int(token)]
        else:
            return None
    return ReferenceTarget(value, document.draft) if isinstance(value, dict | bool) else None


def _has(schema: JsonObject, keyword: str, names: list[str]) -> bool:
    definitions = schema.get(keyword)
    return isinstance(definitions, dict) and all(name in definitions for name in names)
