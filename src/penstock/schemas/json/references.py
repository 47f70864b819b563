"""Where a `$ref` leads: the schema itself and the documents it imports, by address.

Nothing is fetched, ever: an address that no document here has is an InvalidSchemaError. A document
without an address of its own gets one below `ROOT`, so that relative names find each other.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from threading import Lock
from typing import Final, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

import jsonschema_rs

from penstock.schemas.json.jsontext import JsonObject, JsonValue, read_json
from penstock.schemas.model import Imports, InvalidSchemaError

ROOT: Final = "http://schema.invalid/"
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_NOT_SCHEMAS: Final = frozenset({"enum", "const", "default", "examples"})
_BY_NAME: Final = frozenset(  # keywords whose members have names, not keywords
    {
        "properties",
        "patternProperties",
        "definitions",
        "$defs",
        "dependencies",
        "dependentSchemas",
    }
)


class Draft(Enum):
    """The dialects, by the number jsonschema-rs gives them."""

    DRAFT_4 = 4
    DRAFT_6 = 6
    DRAFT_7 = 7
    DRAFT_2019_09 = 19
    DRAFT_2020_12 = 20

    @property
    def is_modern(self) -> bool:
        """Since 2019-09 a `$ref` has neighbours, and there are new keywords for old ones."""
        return self in (Draft.DRAFT_2019_09, Draft.DRAFT_2020_12)

    @property
    def id_keyword(self) -> str:
        """The keyword that gives a schema its address."""
        return "id" if self is Draft.DRAFT_4 else "$id"


_DRAFTS: Final = {
    "json-schema.org/schema": Draft.DRAFT_4,
    "json-schema.org/draft-04/schema": Draft.DRAFT_4,
    "json-schema.org/draft-06/schema": Draft.DRAFT_6,
    "json-schema.org/draft-07/schema": Draft.DRAFT_7,
    "json-schema.org/draft/2019-09/schema": Draft.DRAFT_2019_09,
    "json-schema.org/draft/2020-12/schema": Draft.DRAFT_2020_12,
}


def draft_of(document: JsonValue, otherwise: Draft) -> Draft:
    """The dialect a document says it is in; `otherwise` if it names none or an unknown one."""
    dialect = document.get("$schema") if isinstance(document, dict) else None
    if not isinstance(dialect, str):
        return otherwise
    address = dialect.removesuffix("#").removeprefix("http://").removeprefix("https://")
    return _DRAFTS.get(address, otherwise)


class ReferenceTarget(NamedTuple):
    """What a reference points to, and the dialect it is written in."""

    schema: JsonValue
    draft: Draft


class _Address(NamedTuple):
    base: str
    draft: Draft


@dataclass(slots=True)
class Documents:
    """The schema, its imports, and every place in them that has an address."""

    root: JsonValue
    draft: Draft
    resources: dict[str, JsonValue] = field(default_factory=dict)  # address -> imported document
    base: str = ROOT
    _by_address: dict[str, ReferenceTarget] = field(default_factory=dict)
    _bases: dict[int, _Address] = field(default_factory=dict)  # by id of an object with a $ref
    _is_walked: bool = False  # many schemas refer to nothing, and are never walked
    _walking: Lock = field(default_factory=Lock)

    def target(self, schema: JsonObject) -> ReferenceTarget:
        """What the `$ref` of a schema of these documents points to."""
        self._walk_all()
        base, draft = self._bases.get(id(schema), _Address(self.base, self.draft))
        reference = reference_in(schema, draft)
        assert reference is not None
        found = self._find(base, reference)
        if found is None:
            raise InvalidSchemaError(
                f'the $ref "{reference}" leads nowhere: it is neither in the schema nor in its '
                "references, and nothing is fetched"
            )
        return found

    def refuse_dangling(self) -> None:
        """Raise InvalidSchemaError for the first `$ref` whose target does not exist."""
        self._walk_all()
        for name, document in {"": self.root, **self.resources}.items():
            for path, schema in _walked(document):
                if id(schema) not in self._bases:
                    continue
                try:
                    self.target(schema)
                except InvalidSchemaError as wrong:
                    where = f'in the reference "{name.removeprefix(ROOT)}": ' if name else ""
                    raise InvalidSchemaError(f"{where}{wrong} at {pointer_of(path)}") from None

    def _find(self, base: str, reference: str) -> ReferenceTarget | None:
        address, fragment = urldefrag(_join(base, reference))
        with self._walking:
            if address not in self._by_address:
                for part_address, part in _well_known(address, self.draft).items():
                    self._walk(part, part_address, self.draft)
        document = self._by_address.get(address)
        if document is None:
            return None
        if not fragment:
            return document
        if not fragment.startswith("/"):
            return self._by_address.get(f"{address}#{unquote(fragment)}")
        return _at_pointer(document, fragment)

    def _walk_all(self) -> None:
        """Note every address, and where every reference starts from; once."""
        if self._is_walked:
            return
        with self._walking:
            self._walk(self.root, ROOT, self.draft)
            # An `$id` beside a `$ref` names nothing before 2019-09, but for the whole document:
            self._by_address.setdefault(self.base, ReferenceTarget(self.root, self.draft))
            for address, document in self.resources.items():
                self._walk(document, address, draft_of(document, self.draft))
            self._is_walked = True  # at the end: until then other threads wait

    def _walk(self, document: JsonValue, address: str, draft: Draft) -> None:
        self._by_address.setdefault(address, ReferenceTarget(document, draft))
        waiting: list[tuple[JsonValue, str]] = [(document, address)]
        while waiting:
            value, base = waiting.pop()
            if isinstance(value, list):
                waiting += [(one, base) for one in value]
            if not isinstance(value, dict):
                continue
            base = self._named(value, base, draft)
            if reference_in(value, draft) is not None:
                self._bases[id(value)] = _Address(base, draft)
            waiting += [(one, base) for one in _schemas_in(value)]

    def _named(self, schema: JsonObject, base: str, draft: Draft) -> str:
        """The base for what is inside `schema`, whose addresses are noted on the way."""
        here = ReferenceTarget(schema, draft)
        own = schema.get(draft.id_keyword)
        if isinstance(own, str) and (draft.is_modern or "$ref" not in schema):
            base, anchor = urldefrag(_join(base, own))
            self._by_address.setdefault(f"{base}#{anchor}" if anchor else base, here)
        for keyword in ("$anchor", "$dynamicAnchor"):
            name = schema.get(keyword)
            if isinstance(name, str):
                self._by_address.setdefault(f"{base}#{name}", here)
        return base


def pointer_of(path: Iterable[str | int]) -> str:
    """A path as a JSON pointer."""
    tokens = [str(one).replace("~", "~0").replace("/", "~1") for one in path]
    return "/".join(["#", *tokens])


def _walked(document: JsonValue) -> Iterator[tuple[tuple[str | int, ...], JsonObject]]:
    """All objects in a document, each with its path."""
    waiting: list[tuple[tuple[str | int, ...], JsonValue]] = [((), document)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict):
            yield path, value
            waiting += [((*path, key), one) for key, one in reversed(value.items())]
        elif isinstance(value, list):
            waiting += [((*path, index), one) for index, one in enumerate(value)]


def _schemas_in(schema: JsonObject) -> Iterator[JsonValue]:
    for keyword, value in schema.items():
        if keyword in _BY_NAME and isinstance(value, dict):
            yield from value.values()
        elif keyword not in _NOT_SCHEMAS:
            yield value


def reference_in(schema: JsonObject, draft: Draft) -> str | None:
    """The reference a schema makes, if it makes one."""
    keywords = _REFERENCES if draft.is_modern else _REFERENCES[:1]
    for keyword in keywords:
        reference = schema.get(keyword)
        if isinstance(reference, str):
            return reference
    return None


def read_documents(root: JsonValue, imports: Imports) -> Documents:
    """The schema with everything it may refer to."""
    draft = draft_of(root, Draft.DRAFT_7)
    documents = Documents(root, draft)
    own = root.get(draft.id_keyword) if isinstance(root, dict) else None
    if isinstance(own, str):
        documents.base = urldefrag(_join(ROOT, own))[0]
    for name, text in imports.items():
        try:
            document = read_json(text)
        except InvalidSchemaError as wrong:
            raise InvalidSchemaError(f'in the reference "{name}": {wrong}') from None
        for address in dict.fromkeys(_addresses(documents.base, name)):
            documents.resources[address] = document
    return documents


def _addresses(base: str, name: str) -> Iterator[str]:
    """A relative name is looked up beside the schema, whichever address that says it has."""
    yield urldefrag(_join(base, name))[0]
    yield urldefrag(_join(ROOT, name))[0]


def _join(base: str, reference: str) -> str:
    try:
        if reference.startswith("#"):  # urljoin drops a base such as urn:uuid:…
            return urldefrag(base)[0] + reference
        return urljoin(base, reference)
    except ValueError as wrong:
        raise InvalidSchemaError(f'"{reference}" is not a URI: {wrong}') from None


def _well_known(address: str, draft: Draft) -> Mapping[str, JsonValue]:
    """The meta-schema of a draft and its parts, by address; empty if this is not its address."""
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
            holder = value
            if token == "$defs" and depth == 0 and not _has(value, "$defs", tokens[1:2]):
                token = "definitions"  # the peer looks in both for what is said to be in $defs
            if token not in holder:
                return None
            value = holder[token]
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
