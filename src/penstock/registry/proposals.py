"""Schemas that somebody brings: registered, looked up, checked for compatibility.

Between the store, which knows what is there, and the examiner, which understands schemas.
"""

from collections.abc import Iterable
from typing import NamedTuple

from penstock.gate.reader_breaks import ReaderBreak, reader_break_messages
from penstock.registry.declared_readers import day_of, readers_of
from penstock.registry.errors import Declined, invalid_schema
from penstock.registry.examine import Stored, Text, invalid
from penstock.registry.node import Registry
from penstock.registry.store.commands import Command, Register
from penstock.registry.store.decide_register import find_registered
from penstock.registry.store.events import Config, Contents, Mode, Version
from penstock.registry.store.rule_sets import governed
from penstock.registry.store.state import Store
from penstock.registry.subject_names import Subject, context_of
from penstock.schemas.compatibility import CompatibilityResult, Level, incompatibility_messages
from penstock.schemas.identity import Metadata, RuleSet
from penstock.schemas.model import InvalidSchemaError, Policy, SchemaText, SchemaType, Tagging


class Proposal(NamedTuple):
    """A schema as a request brings it."""

    subject: Subject
    source: SchemaText
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None
    id: int | None = None
    version: int = 0
    normalize: bool = False
    force: bool = False  # register whatever the level says
    tagging: Tagging | None = None  # of what the text says, before it is stored


class Judgement(NamedTuple):
    """What a compatibility check found."""

    is_compatible: bool
    messages: list[str]


async def register(registry: Registry, proposal: Proposal) -> Version:
    """The version that holds the schema now. One that is there already is found by any node."""
    if proposal.id is None:
        found = await find(registry, proposal)
        if found is not None and proposal.version in (0, found.number):
            return found

    async def prepare() -> Command:
        return await _registration(registry, proposal)

    version = await registry.write(prepare)
    assert isinstance(version, Version)
    return version


async def find(registry: Registry, proposal: Proposal, *, deleted: bool = False) -> Version | None:
    """The version of the subject that says the same, if there is one."""
    text = await _canonical(registry, proposal)
    contents = Contents(text.source, proposal.metadata, proposal.rule_set)
    exact = find_registered(registry.store, proposal.subject, contents, deleted=deleted)
    if exact is not None:
        return exact
    equivalents = await _equivalents(registry, proposal.subject, text, deleted=deleted)
    return find_registered(registry.store, proposal.subject, contents, equivalents, deleted=deleted)


async def check_all(registry: Registry, proposal: Proposal) -> Judgement:
    """As registration would check it."""
    earlier = registry.store.live(proposal.subject)
    return await _judgement(registry, proposal, earlier, with_readers=True)


async def check_one(registry: Registry, proposal: Proposal, number: int) -> Judgement:
    """Against one version; against the latest of a subject without any, all is well.

    Readers have a say where the question is what comes after the latest.
    """
    store = registry.store
    if number == -1 and not store.has_subject(proposal.subject):
        await _canonical(registry, proposal)
        return Judgement(True, [])
    earlier = [store.version(proposal.subject, number)]
    return await _judgement(registry, proposal, earlier, with_readers=number == -1)


async def _judgement(
    registry: Registry, proposal: Proposal, earlier: Iterable[Version], *, with_readers: bool
) -> Judgement:
    text = await _canonical(registry, proposal)
    verdict = await _verdict(registry, proposal, text, earlier)
    harms = await _harms(registry, proposal, text) if with_readers else ()
    level = _level(registry.store.config(proposal.subject))
    told = [*incompatibility_messages(verdict, level), *reader_break_messages(harms)]
    return Judgement(verdict.is_compatible and not harms, told)


async def _registration(registry: Registry, proposal: Proposal) -> Register:
    text = await _canonical(registry, proposal)
    contents = Contents(text.source, proposal.metadata, proposal.rule_set)
    command = Register(
        proposal.subject,
        contents,
        proposal.id,
        proposal.version,
        is_numbered=proposal.tagging is not None,
    )
    if proposal.id is not None:
        return command
    equivalents = await _equivalents(registry, proposal.subject, text)
    command = command._replace(equivalents=equivalents)
    if proposal.force or find_registered(registry.store, proposal.subject, contents, equivalents):
        return command
    earlier = registry.store.live(proposal.subject)
    verdict = await _verdict(registry, proposal, text, earlier)
    return command._replace(verdict=verdict, harms=await _harms(registry, proposal, text))


async def _canonical(registry: Registry, proposal: Proposal) -> Text:
    store, subject = registry.store, proposal.subject
    context = context_of(subject)
    if not proposal.source.text.strip():
        raise invalid_schema("Empty schema")
    try:
        references = store.pinned(proposal.source.references, context)
        imports = store.imports(references, context)
    except InvalidSchemaError as wrong:
        raise invalid(proposal.source, str(wrong)) from None
    given = Text(proposal.source._replace(references=references), imports)
    is_import = proposal.id is not None or store.mode(subject) in (Mode.IMPORT, Mode.FORWARD)
    normalize = proposal.normalize or store.config(subject).normalize or False
    source = await registry.examiner.canonical(
        given, proposal.tagging, normalize=normalize and not is_import, strict=not is_import
    )
    return Text(source, imports)


async def _equivalents(
    registry: Registry, subject: Subject, text: Text, *, deleted: bool = False
) -> frozenset[int]:
    store = registry.store
    versions = store.stored(subject) if deleted else store.live(subject)
    candidates = [
        Stored(one.number, text_of(store, one))
        for one in versions
        if _may_equal(text.source, one.contents.source)
    ]
    if not candidates:
        return frozenset()
    return await registry.examiner.equivalents(text, candidates)


def _may_equal(source: SchemaText, other: SchemaText) -> bool:
    """With the same references; or, in Avro, with those of the other written out."""
    if source.type is not other.type:
        return False
    if source.references == other.references:
        return True
    return source.type is SchemaType.AVRO and not source.references


async def _verdict(
    registry: Registry, proposal: Proposal, text: Text, earlier: Iterable[Version]
) -> CompatibilityResult:
    store = registry.store
    config = store.config(proposal.subject)
    level = _level(config)
    if level is Level.NONE:
        return CompatibilityResult()
    compared = [
        Stored(one.number, text_of(store, one)) for one in _grouped(store, proposal, earlier)
    ]
    return await registry.examiner.judge(level, _policy(config), text, compared)


async def _harms(registry: Registry, proposal: Proposal, text: Text) -> tuple[ReaderBreak, ...]:
    """What registered readers would lose, at any level."""
    readers = readers_of(registry.store, proposal.subject)
    if not readers:
        return ()
    policy = _policy(registry.store.config(proposal.subject))
    return await registry.examiner.harms(policy, text, readers, day_of(registry.clock()))


def _policy(config: Config) -> Policy:
    return Policy.LENIENT if config.policy == Policy.LENIENT else Policy.STRICT


def _grouped(store: Store, proposal: Proposal, earlier: Iterable[Version]) -> list[Version]:
    """Those that are compared at all: with a group set, only those of the same value."""
    config = store.config(proposal.subject)
    if not config.group:
        return list(earlier)
    latest = store.latest(proposal.subject)
    contents = Contents(proposal.source, proposal.metadata, proposal.rule_set)
    completed = governed(contents, latest.contents if latest else None, config)
    wanted = _property(completed.metadata, config.group)
    return [one for one in earlier if _property(one.contents.metadata, config.group) == wanted]


def _property(metadata: Metadata | None, name: str) -> str | None:
    return None if metadata is None else metadata.properties.get(name)


def _level(config: Config) -> Level:
    return Level(config.compatibility or Level.BACKWARD)


def text_of(store: Store, version: Version) -> Text:
    """A stored version with all it builds on."""
    return Text(version.contents.source, store.imports_of(version))


async def in_form(registry: Registry, version: Version, form: str) -> str:
    """The text of a version in the form that was asked for; unknown forms are ignored."""
    if not form:
        return version.contents.source.text
    try:
        return await registry.examiner.formatted(text_of(registry.store, version), form)
    except Declined:  # stored elsewhere and not understood here: served as it is
        return version.contents.source.text
