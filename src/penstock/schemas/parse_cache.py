"""Parse a schema of any language, and caches of parsed schemas and of comparisons.

A language is imported on first use: Protobuf's compiler alone costs more to import than all of
Avro. Schemas are immutable, so cache entries never become stale; the least recently used ones are
evicted when a limit is reached. Threads may share a cache: two that need the same result at the
same time may both compute it.
"""

from collections import OrderedDict
from collections.abc import Mapping
from importlib import import_module
from threading import Lock
from typing import Final, Generic, Protocol, TypeVar, cast

from penstock.extras import require
from penstock.schemas.compare_limits import characters_of
from penstock.schemas.identity import fingerprint
from penstock.schemas.model import (
    NO_IMPORTS,
    Difference,
    Imports,
    ParsedSchema,
    Policy,
    Reference,
    SchemaText,
    SchemaType,
)

PARSED_CHARACTERS_MAX: Final = 64 << 20  # of schema texts; a parsed schema is a few times its text
RESULTS_CHARACTERS_MAX: Final = 32 << 20  # of the texts of differences, plus a weight per result
_RESULT_WEIGHT: Final = 300  # of a comparison without differences
_MODULES: Final[Mapping[SchemaType, str]] = {
    SchemaType.AVRO: "penstock.schemas.avro",
    SchemaType.PROTOBUF: "penstock.schemas.protobuf",
    SchemaType.JSON: "penstock.schemas.json",
}

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class _Language(Protocol):
    def parse(
        self, text: str, references: tuple[Reference, ...], imports: Imports, *, strict: bool
    ) -> ParsedSchema: ...


def parse(
    source: SchemaText, imports: Imports = NO_IMPORTS, *, strict: bool = True
) -> ParsedSchema:
    """Parse a schema. `strict=False` is for schemas that are stored already."""
    if source.type is SchemaType.PROTOBUF:
        require("protobuf")
    language = cast("_Language", import_module(_MODULES[source.type]))
    return language.parse(source.text, source.references, imports, strict=strict)


class LruCache(Generic[_Key, _Value]):
    """A map that evicts the least recently used entries above a total weight."""

    def __init__(self, weight_max: int) -> None:
        self._weight_max = weight_max
        self._weight = 0
        self._entries: OrderedDict[_Key, tuple[_Value, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: _Key) -> _Value | None:
        """The value, which counts as used now; None if it is not cached."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def add(self, key: _Key, value: _Value, weight: int = 1) -> list[_Value]:
        """Add a value; returns the evicted ones, which may include the value itself."""
        if key in self._entries:  # another thread was faster
            return [value]
        self._entries[key] = (value, weight)
        self._weight += weight
        evicted: list[_Value] = []
        while self._weight > self._weight_max:
            _, (oldest, freed) = self._entries.popitem(last=False)
            self._weight -= freed
            evicted.append(oldest)
        return evicted


class SchemaCache:
    """Parses and compares schemas, and caches both by the fingerprints of the texts."""

    def __init__(
        self,
        parsed_characters_max: int = PARSED_CHARACTERS_MAX,
        results_characters_max: int = RESULTS_CHARACTERS_MAX,
    ) -> None:
        self._parsed: LruCache[bytes, ParsedSchema] = LruCache(parsed_characters_max)
        self._results: LruCache[tuple[bytes, bytes, Policy], tuple[Difference, ...]] = LruCache(
            results_characters_max
        )
        self._lock = Lock()  # guards all maps; released while parsing and comparing
        self._fingerprints: dict[int, bytes] = {}  # of the values of `_parsed`, by object id

    def parse(
        self, source: SchemaText, imports: Imports = NO_IMPORTS, *, strict: bool = True
    ) -> ParsedSchema:
        """As `parse`; the same object for the same input while it is cached."""
        key = _fingerprint(source, imports, strict=strict)
        with self._lock:
            known = self._parsed.find(key)
        if known is not None:
            return known
        schema = parse(source, imports, strict=strict)
        weight = len(source.text) + sum(map(len, imports.values()))
        with self._lock:
            self._fingerprints[id(schema)] = key
            for evicted in self._parsed.add(key, schema, weight):
                del self._fingerprints[id(evicted)]
        return schema

    def incompatibilities(
        self, reader: ParsedSchema, writer: ParsedSchema, policy: Policy = Policy.STRICT
    ) -> tuple[Difference, ...]:
        """As `reader.incompatibilities(writer, policy)`; for `compatibility.check`."""
        with self._lock:
            reader_key = self._fingerprints.get(id(reader))
            writer_key = self._fingerprints.get(id(writer))
            if reader_key is None or writer_key is None:  # not parsed here, or evicted
                result = key = None
            else:
                key = (reader_key, writer_key, policy)
                result = self._results.find(key)
        if result is None:
            result = reader.incompatibilities(writer, policy)
            if key is not None:
                with self._lock:
                    self._results.add(key, result, _RESULT_WEIGHT + characters_of(result))
        return result


def _fingerprint(source: SchemaText, imports: Imports, *, strict: bool) -> bytes:
    texts = [f"{name}\0{len(text)}\0{text}" for name, text in imports.items()]
    head = f"{source.type} {strict} {len(source.text)} {len(texts)}\n"
    return fingerprint("".join((head, source.text, *texts)), source.references)
