"""Schemas understood and compared, in a thread of its own: a large one must not hold up reads.

Everything handed over is immutable, so nothing here sees the store. One thread, because the caches
are for one; what is known already comes back at once.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from functools import partial
from typing import Final, NamedTuple, TypeVar

from penstock.registry.errors import Declined, invalid_schema, schema_too_large
from penstock.schemas.caches import SchemaCache
from penstock.schemas.compatibility import Earlier, Level, Verdict, check
from penstock.schemas.model import UNCHECKABLE, Imports, InvalidSchema, ParsedSchema, Policy, Source
from penstock.schemas.readers import Harm, InvalidReader, harms, read_reader
from penstock.schemas.tags import Tagging

TEXT_CHARACTERS_MAX: Final = 4 << 20  # as written; what is stored is bounded by Kafka's record size
_SHOWN_CHARACTERS_MAX: Final = 1024
_Found = TypeVar("_Found")


class Text(NamedTuple):
    """A schema with all it builds on."""

    source: Source
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
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="schemas")

    def close(self) -> None:
        """Nothing more will be asked."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def canonical(
        self, text: Text, tagging: Tagging | None, *, normalize: bool, strict: bool
    ) -> Source:
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
    ) -> Verdict:
        """Whether the schema may follow those that are there."""
        return await self._run(partial(self._judge, level, policy, text, earlier))

    async def harms(
        self, policy: Policy, text: Text, readers: Sequence[KeptReader], today: date
    ) -> tuple[Harm, ...]:
        """What the schema takes from registered readers."""
        return await self._run(partial(self._harms, policy, text, readers, today))

    async def _run(self, work: Callable[[], _Found]) -> _Found:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _parse(self, text: Text, *, strict: bool) -> ParsedSchema:
        try:
            return self._cache.parse(text.source, text.imports, strict=strict)
        except InvalidSchema as wrong:
            raise invalid(text.source, str(wrong)) from None

    def _canonical(
        self, text: Text, tagging: Tagging | None, normalize: bool, strict: bool
    ) -> Source:
        if len(text.source.text) > TEXT_CHARACTERS_MAX:
            raise schema_too_large(f"it has more than {TEXT_CHARACTERS_MAX} characters")
        schema = self._parse(text, strict=strict)
        if tagging is not None:
            try:
                schema = schema.tagged(tagging)
            except InvalidSchema as wrong:
                raise invalid_schema(str(wrong)) from None
        if normalize:
            schema = schema.normalized()
        return Source(schema.type, schema.canonical, schema.references)

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
    ) -> Verdict:
        if level is Level.NONE or not earlier:
            return Verdict()
        compared = earlier if level.is_transitive else earlier[-1:]
        parsed = [Earlier(one.number, self._parse(one.text, strict=False)) for one in compared]
        schema = self._parse(text, strict=False)
        return check(level, schema, parsed, policy, self._cache.unreadable)

    def _harms(
        self, policy: Policy, text: Text, readers: Sequence[KeptReader], today: date
    ) -> tuple[Harm, ...]:
        schema = self._parse(text, strict=False)
        found: list[Harm] = []
        for name, of_reader, properties in readers:
            try:
                reader = read_reader(name, self._parse(of_reader, strict=False), properties)
            except (Declined, InvalidReader) as wrong:
                told = f"the reader {name} is not understood, declare it anew or retire it: {wrong}"
                found.append(Harm(name, UNCHECKABLE, "/", told, None, None))
                continue
            if not reader.is_expired(today):
                found += harms(reader, schema, None, policy, self._cache.unreadable)
        return tuple(found)


def invalid(source: Source, reason: str) -> Declined:
    """The peer's sentence: what was given, and what is wrong with it."""
    shown = source.text
    if len(shown) > _SHOWN_CHARACTERS_MAX:
        shown = f"{shown[:_SHOWN_CHARACTERS_MAX]}..."
    return invalid_schema(f"Invalid schema {shown} of type {source.type}, details: {reason}")
