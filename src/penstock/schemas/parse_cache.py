"""The language of a schema, found by its type. A language is imported when it is first met.

Protobuf's compiler alone costs more to import than everything Avro needs.

What was understood and compared before: parsed schemas, and verdicts on pairs of them.

Schemas never change once written, so nothing here goes stale; what was not used for longest is
dropped when the bounds are reached. Several threads may share one cache: two that ask for the same
thing at the same time may both compute it.
"""

from collections import OrderedDict
from collections.abc import Mapping
from importlib import import_module
from threading import Lock
from typing import Final, Generic, Protocol, TypeVar, cast

from penstock.extras import require
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
    characters_of,
)

_ROOMS: Final[Mapping[SchemaType, str]] = {
    SchemaType.AVRO: "penstock.schemas.avro",
    SchemaType.PROTOBUF: "penstock.schemas.protobuf",
    SchemaType.JSON: "penstock.schemas.json",
}


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
    language = cast(_Language, import_module(_ROOMS[source.type]))
    return language.parse(source.text, source.references, imports, strict=strict)


PARSED_CHARACTERS_MAX: Final = 64 << 20  # of schema texts; a parsed schema is a few times its text
VERDICTS_CHARACTERS_MAX: Final = 32 << 20  # of the texts of differences, and more for each verdict
_VERDICT_WEIGHT: Final = 300  # of a verdict without differences

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Recent(Generic[_Key, _Value]):
    """A map that forgets what was not used for longest once it weighs too much."""

    def __init__(self, weight_max: int) -> None:
        self._weight_max = weight_max
        self._weight = 0
        self._entries: OrderedDict[_Key, tuple[_Value, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: _Key) -> _Value | None:
        """The value, which counts as used now; None if it is not there."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def keep(self, key: _Key, value: _Value, weight: int = 1) -> list[_Value]:
        """Remember a value. What is dropped for it: perhaps the value itself."""
        if key in self._entries:  # another thread was faster
            return [value]
        self._entries[key] = (value, weight)
        self._weight += weight
        dropped: list[_Value] = []
        while self._weight > self._weight_max:
            _, (oldest, freed) = self._entries.popitem(last=False)
            self._weight -= freed
            dropped.append(oldest)
        return dropped


class SchemaCache:
    """Parses and compares, remembering both by the fingerprints of what went in."""

    def __init__(
        self,
        parsed_characters_max: int = PARSED_CHARACTERS_MAX,
        verdicts_characters_max: int = VERDICTS_CHARACTERS_MAX,
    ) -> None:
        self._parsed: Recent[bytes, ParsedSchema] = Recent(parsed_characters_max)
        self._verdicts: Recent[tuple[bytes, bytes, Policy], tuple[Difference, ...]] = Recent(
            verdicts_characters_max
        )
        self._lock = Lock()  # of all maps here; not held while parsing or comparing
        self._fingerprints: dict[int, bytes] = {}  # of what is in `_parsed`, by id of the object

    def parse(
        self, source: SchemaText, imports: Imports = NO_IMPORTS, *, strict: bool = True
    ) -> ParsedSchema:
        """As `languages.parse`, and the same object for the same input while it is remembered."""
        key = _fingerprint(source, imports, strict=strict)
        with self._lock:
            known = self._parsed.find(key)
        if known is not None:
            return known
        schema = parse(source, imports, strict=strict)
        weight = len(source.text) + sum(map(len, imports.values()))
        with self._lock:
            self._fingerprints[id(schema)] = key
            for dropped in self._parsed.keep(key, schema, weight):
                del self._fingerprints[id(dropped)]
        return schema

    def incompatibilities(
        self, reader: ParsedSchema, writer: ParsedSchema, policy: Policy = Policy.STRICT
    ) -> tuple[Difference, ...]:
        """As `reader.incompatibilities(writer, policy)`; for `compatibility.check`."""
        with self._lock:
            reader_key = self._fingerprints.get(id(reader))
            writer_key = self._fingerprints.get(id(writer))
            if reader_key is None or writer_key is None:  # not from here, or dropped since
                verdict = key = None
            else:
                key = (reader_key, writer_key, policy)
                verdict = self._verdicts.find(key)
        if verdict is None:
            verdict = reader.incompatibilities(writer, policy)
            if key is not None:
                with self._lock:
                    self._verdicts.keep(key, verdict, _VERDICT_WEIGHT + characters_of(verdict))
        return verdict


def _fingerprint(source: SchemaText, imports: Imports, *, strict: bool) -> bytes:
    texts = [f"{name}\0{len(text)}\0{text}" for name, text in imports.items()]
    head = f"{source.type} {strict} {len(source.text)} {len(texts)}\n"
    return fingerprint("".join((head, source.text, *texts)), source.references)
