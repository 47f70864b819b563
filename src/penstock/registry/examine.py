"""Schemas parsed and compared, in threads: a large one must not delay reads.

Everything handed over is immutable, and nothing here sees the state. Several threads, so that a
slow check does not delay the others; they share what was parsed and compared. A check has a budget:
each comparison of two schemas a number of steps (`schemas.model.Budget`), all of them together
`CHECK_S`.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from penstock.extras import MissingExtraError
from penstock.gate.reader_breaks import find_reader_breaks
from penstock.registry.errors import (
    DeclinedError,
    invalid_schema,
    not_installed,
    schema_too_large,
    timed_out,
)
from penstock.registry.store.examination import (
    Examination,
    FullSchema,
    NumberedSchema,
    Snapshot,
)
from penstock.schemas.compare_limits import UNCHECKABLE, shortened
from penstock.schemas.compatibility import CompatibilityResult, EarlierVersion, Level, check
from penstock.schemas.model import (
    Difference,
    InvalidSchemaError,
    ParsedSchema,
    Policy,
    SchemaText,
    SchemaType,
)
from penstock.schemas.parse_cache import SchemaCache
from penstock.schemas.reader_break import ReaderBreak
from penstock.schemas.readers import InvalidReaderError, read_reader

TEXT_CHARACTERS_MAX: Final = 4 << 20  # as written; what is stored is limited by the record's size
IMPORTS_CHARACTERS_MAX: Final = 16 << 20  # of everything a schema imports
THREADS: Final = 4
CHECK_S: Final = 20.0  # for one proposal against all versions and readers
_SHOWN_CHARACTERS_MAX: Final = 1024
ResultT = TypeVar("ResultT")


class Examiner:
    """Examines proposals, and formats stored schemas."""

    def __init__(self) -> None:
        self._cache = SchemaCache()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="schemas")

    def close(self) -> None:
        """Stop the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def examine(self, snapshot: Snapshot, as_of: int, *, thorough: bool) -> Examination:
        """Everything in one thread hop; declines what is not a schema.

        Unless `thorough`, nothing is computed that a schema which is registered already does not
        need: no equivalents if a version has this very text, no check if one is equivalent.
        """
        return await self._run(partial(self._examine, snapshot, as_of, thorough))

    async def formatted(self, schema: FullSchema, form: str) -> str:
        """A stored schema in another form."""
        return await self._run(lambda: self._parse(schema, strict=False).formatted(form))

    async def _run(self, work: Callable[[], ResultT]) -> ResultT:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    # In a thread.

    def _examine(self, snapshot: Snapshot, as_of: int, thorough: bool) -> Examination:
        canonical = self._canonical(snapshot)
        examination = Examination(snapshot, as_of, canonical)
        if not thorough and any(
            candidate.schema.source == canonical for candidate in snapshot.candidates
        ):
            return examination
        schema = FullSchema(canonical, snapshot.given.imports)
        equivalents = self._equivalents(schema, snapshot.candidates)
        examination = examination._replace(equivalent_versions=equivalents)
        if snapshot.level is None or (equivalents and not thorough):
            return examination
        return examination._replace(
            compatibility=self._check(snapshot.level, snapshot.policy, schema, snapshot.compared),
            reader_breaks=self._reader_breaks(snapshot, schema),
        )

    def _parse(self, schema: FullSchema, *, strict: bool) -> ParsedSchema:
        try:
            return self._cache.parse(schema.source, schema.imports, strict=strict)
        except InvalidSchemaError as error:
            raise invalid(schema.source, str(error)) from None
        except MissingExtraError as missing:
            raise not_installed(f"this registry cannot read the schema: {missing}") from None

    def _canonical(self, snapshot: Snapshot) -> SchemaText:
        """The schema as it is stored."""
        given = snapshot.given
        if len(given.source.text) > TEXT_CHARACTERS_MAX:
            raise schema_too_large(f"it has more than {TEXT_CHARACTERS_MAX} characters")
        if sum(map(len, given.imports.values())) > IMPORTS_CHARACTERS_MAX:
            raise schema_too_large(
                f"its references have more than {IMPORTS_CHARACTERS_MAX} characters in all"
            )
        schema = self._parse(given, strict=snapshot.strict)
        if snapshot.tagging is not None:
            try:
                schema = schema.tagged(snapshot.tagging)
            except InvalidSchemaError as error:
                raise invalid_schema(str(error)) from None
        if snapshot.normalize:
            schema = schema.normalized()
        return SchemaText(schema.type, schema.canonical, schema.references)

    def _equivalents(
        self, schema: FullSchema, candidates: Sequence[NumberedSchema]
    ) -> frozenset[int]:
        """The candidates that are the same schema in another form."""
        similar = [each for each in candidates if _may_equal(schema.source, each.schema.source)]
        if not similar:
            return frozenset()
        parsed = self._parse(schema, strict=False)
        numbers = set()
        for number, other in similar:
            is_same = other.source.text == schema.source.text and other.imports == schema.imports
            if is_same or parsed.equivalent(self._parse(other, strict=False)):
                numbers.add(number)
        return frozenset(numbers)

    def _check(
        self, level: Level, policy: Policy, schema: FullSchema, compared: Sequence[NumberedSchema]
    ) -> CompatibilityResult:
        """Whether the schema may follow these versions."""
        if level is Level.NONE or not compared:
            return CompatibilityResult()
        deadline = _Deadline(self._cache)
        parsed = self._parse(schema, strict=False)
        earlier = []
        for number, other in compared:
            deadline.check()
            earlier.append(EarlierVersion(number, self._parse(other, strict=False)))
        return check(level, parsed, earlier, policy, deadline.incompatibilities)

    def _reader_breaks(self, snapshot: Snapshot, schema: FullSchema) -> tuple[ReaderBreak, ...]:
        """What the schema breaks for declared readers, at any level."""
        if not snapshot.readers:
            return ()
        deadline = _Deadline(self._cache)
        parsed = self._parse(schema, strict=False)
        breaks: list[ReaderBreak] = []
        for name, of_reader, properties in snapshot.readers:
            try:
                reader = read_reader(name, self._parse(of_reader, strict=False), properties)
            except (DeclinedError, InvalidReaderError) as error:
                sentence = (
                    f"the reader {name} cannot be read, declare it again or retire it: {error}"
                )
                breaks.append(ReaderBreak(name, UNCHECKABLE, "/", sentence, None, None))
                continue
            if not reader.is_expired(snapshot.today):
                breaks += find_reader_breaks(
                    reader, parsed, None, snapshot.policy, deadline.incompatibilities
                )
        return tuple(breaks)


def _may_equal(source: SchemaText, other: SchemaText) -> bool:
    """With the same references; or, in Avro, with those of the other written out."""
    if source.type is not other.type:
        return False
    if source.references == other.references:
        return True
    return source.type is SchemaType.AVRO and not source.references


class _Deadline:
    """Compares as the cache does while there is time. Results are cached for the next try."""

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


def invalid(source: SchemaText, reason: str) -> DeclinedError:
    """Confluent's sentence: what was given, and what is wrong with it."""
    shown = source.text
    if len(shown) > _SHOWN_CHARACTERS_MAX:
        shown = f"{shown[:_SHOWN_CHARACTERS_MAX]}..."
    details = shortened(reason)
    return invalid_schema(f"Invalid schema {shown} of type {source.type}, details: {details}")
