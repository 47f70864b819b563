"""Schemas understood and compared, in threads of their own: a large one must not hold up reads.

Everything handed over is immutable, so nothing here sees the store. Several threads, so that a
check that takes its full time does not hold up the others; they share what was parsed and compared.
A check has a budget: each comparison of two schemas a number of steps (`schemas.model.Budget`), all
of them together `CHECK_S`.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from functools import partial
from typing import Final, NamedTuple, TypeVar

from penstock.extras import MissingExtraError
from penstock.gate.reader_breaks import ReaderBreak, find_reader_breaks
from penstock.registry.errors import (
    Declined,
    invalid_schema,
    not_installed,
    schema_too_large,
    timed_out,
)
from penstock.schemas.compare_limits import UNCHECKABLE, shortened
from penstock.schemas.compatibility import CompatibilityResult, EarlierVersion, Level, check
from penstock.schemas.model import (
    Difference,
    Imports,
    InvalidSchemaError,
    ParsedSchema,
    Policy,
    SchemaText,
    Tagging,
)
from penstock.schemas.parse_cache import SchemaCache
from penstock.schemas.readers import InvalidReaderError, read_reader

TEXT_CHARACTERS_MAX: Final = 4 << 20  # as written; what is stored is bounded by Kafka's record size
IMPORTS_CHARACTERS_MAX: Final = 16 << 20  # of everything a schema builds on
THREADS: Final = 4
CHECK_S: Final = 20.0  # for one proposal against all the versions it is compared with
_SHOWN_CHARACTERS_MAX: Final = 1024
_Found = TypeVar("_Found")


class Text(NamedTuple):
    """A schema with all it builds on."""

    source: SchemaText
    imports: Imports


class Stored(NamedTuple):
    """A text that has a number already."""

    number: int
    text: Text


class KeptReader(NamedTuple):
    """A registered reader before anybody has understood its schema."""

    name: str
    text: Text
    properties: Mapping[str, str]


class Examiner:
    """Parses, canonicalises and compares."""

    def __init__(self) -> None:
        self._cache = SchemaCache()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="schemas")

    def close(self) -> None:
        """Nothing more will be asked."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def canonical(
        self, text: Text, tagging: Tagging | None, *, normalize: bool, strict: bool
    ) -> SchemaText:
        """The schema as it is stored; declines what is none."""
        return await self._run(partial(self._canonical, text, tagging, normalize, strict))

    async def formatted(self, text: Text, form: str) -> str:
        """A stored schema in another form."""
        return await self._run(lambda: self._parse(text, strict=False).formatted(form))

    async def equivalents(self, text: Text, others: Sequence[Stored]) -> frozenset[int]:
        """Those that say the same in other words."""
        return await self._run(partial(self._equivalents, text, others))

    async def judge(
        self, level: Level, policy: Policy, text: Text, earlier: Sequence[Stored]
    ) -> CompatibilityResult:
        """Whether the schema may follow those that are there."""
        return await self._run(partial(self._judge, level, policy, text, earlier))

    async def harms(
        self, policy: Policy, text: Text, readers: Sequence[KeptReader], today: date
    ) -> tuple[ReaderBreak, ...]:
        """What the schema takes from registered readers."""
        return await self._run(partial(self._harms, policy, text, readers, today))

    async def _run(self, work: Callable[[], _Found]) -> _Found:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _parse(self, text: Text, *, strict: bool) -> ParsedSchema:
        try:
            return self._cache.parse(text.source, text.imports, strict=strict)
        except InvalidSchemaError as wrong:
            raise invalid(text.source, str(wrong)) from None
        except MissingExtraError as missing:
            raise not_installed(f"this registry cannot read the schema: {missing}") from None

    def _canonical(
        self, text: Text, tagging: Tagging | None, normalize: bool, strict: bool
    ) -> SchemaText:
        if len(text.source.text) > TEXT_CHARACTERS_MAX:
            raise schema_too_large(f"it has more than {TEXT_CHARACTERS_MAX} characters")
        if sum(map(len, text.imports.values())) > IMPORTS_CHARACTERS_MAX:
            raise schema_too_large(
                f"its references have more than {IMPORTS_CHARACTERS_MAX} characters in all"
            )
        schema = self._parse(text, strict=strict)
        if tagging is not None:
            try:
                schema = schema.tagged(tagging)
            except InvalidSchemaError as wrong:
                raise invalid_schema(str(wrong)) from None
        if normalize:
            schema = schema.normalized()
        return SchemaText(schema.type, schema.canonical, schema.references)

    def _equivalents(self, text: Text, others: Sequence[Stored]) -> frozenset[int]:
        schema = self._parse(text, strict=False)
        found = set()
        for number, other in others:
            if other.source.type is not schema.type:
                continue
            is_same = other.source.text == text.source.text and other.imports == text.imports
            if is_same or schema.equivalent(self._parse(other, strict=False)):
                found.add(number)
        return frozenset(found)

    def _judge(
        self, level: Level, policy: Policy, text: Text, earlier: Sequence[Stored]
    ) -> CompatibilityResult:
        if level is Level.NONE or not earlier:
            return CompatibilityResult()
        deadline = _Deadline(self._cache)
        schema = self._parse(text, strict=False)
        parsed = []
        for one in earlier if level.is_transitive else earlier[-1:]:
            deadline.check()
            parsed.append(EarlierVersion(one.number, self._parse(one.text, strict=False)))
        return check(level, schema, parsed, policy, deadline.incompatibilities)

    def _harms(
        self, policy: Policy, text: Text, readers: Sequence[KeptReader], today: date
    ) -> tuple[ReaderBreak, ...]:
        deadline = _Deadline(self._cache)
        schema = self._parse(text, strict=False)
        found: list[ReaderBreak] = []
        for name, of_reader, properties in readers:
            try:
                reader = read_reader(name, self._parse(of_reader, strict=False), properties)
            except (Declined, InvalidReaderError) as wrong:
                told = f"the reader {name} is not understood, declare it anew or retire it: {wrong}"
                found.append(ReaderBreak(name, UNCHECKABLE, "/", told, None, None))
                continue
            if not reader.is_expired(today):
                found += find_reader_breaks(
                    reader, schema, None, policy, deadline.incompatibilities
                )
        return tuple(found)


class _Deadline:
    """Compares as the cache does while there is time. What was compared is known the next time."""

    def __init__(self, cache: SchemaCache) -> None:
        self._cache = cache
        self._end_s = time.monotonic() + CHECK_S

    def check(self) -> None:
        """Decline when the time is over."""
        if time.monotonic() > self._end_s:
            raise timed_out(
                f"the schema could not be checked against all versions within {CHECK_S:.0f} s; "
                "try again: what was compared is remembered"
            )

    def incompatibilities(
        self, reader: ParsedSchema, writer: ParsedSchema, policy: Policy
    ) -> tuple[Difference, ...]:
        """Why the one cannot read what the other wrote."""
        self.check()
        return self._cache.incompatibilities(reader, writer, policy)


def invalid(source: SchemaText, reason: str) -> Declined:
    """The peer's sentence: what was given, and what is wrong with it."""
    shown = source.text
    if len(shown) > _SHOWN_CHARACTERS_MAX:
        shown = f"{shown[:_SHOWN_CHARACTERS_MAX]}..."
    details = shortened(reason)
    return invalid_schema(f"Invalid schema {shown} of type {source.type}, details: {details}")
