"""The rules of registering: what counts as there already, which id and number a new one gets."""

from penstock.gate.reader_breaks import reader_break_messages
from penstock.machine import Outcome
from penstock.model import Millis
from penstock.registry.errors import harmful, incompatible, invalid_schema, not_permitted
from penstock.registry.store.commands import Register
from penstock.registry.store.events import (
    Contents,
    ContextMade,
    Event,
    Mode,
    Version,
    VersionRemoved,
    VersionStored,
)
from penstock.registry.store.outcome import answer, reply
from penstock.registry.store.rule_sets import (
    check_rule_set,
    governed,
    has_version,
    same_contract,
    with_version,
)
from penstock.registry.store.state import VERSION_LAST, Store
from penstock.registry.subject_names import Subject, context_of
from penstock.schemas.compatibility import Level, incompatibility_messages

_READ_ONLY = (Mode.READONLY, Mode.READONLY_OVERRIDE)


def decide_register(store: Store, command: Register, now: Millis) -> Outcome[Event]:
    """The version that is there, or a new one."""
    check_mode(store, command.subject, with_id=command.id is not None)
    if command.id is not None:
        return _decide_import(store, command, command.id, now)
    found = find_registered(store, command.subject, command.contents, command.equivalents)
    if found is not None:
        _check_is_latest(store, command, found)
        return answer(found)
    if command.version == -1:
        raise invalid_schema("Schema does not equal the latest version")
    latest = store.latest(command.subject)
    config = store.config(command.subject)
    contents = governed(command.contents, latest.contents if latest else None, config)
    check_rule_set(contents.rule_set)
    number = _next_number(store, command.subject)
    if command.version > 0 and command.version != number:
        raise invalid_schema(f"Version {command.version} is not one more than the latest version")
    is_numbered = command.is_numbered or command.version > 0
    if is_numbered or (latest is not None and has_version(latest.contents.metadata)):
        contents = contents._replace(metadata=with_version(contents.metadata, number))
    if not command.verdict.is_compatible:
        level = Level(config.compatibility or Level.BACKWARD)
        raise incompatible(command.subject, incompatibility_messages(command.verdict, level))
    if command.harms:
        raise harmful(command.subject, reader_break_messages(command.harms))
    return _decide_store(store, command.subject, number, contents, now)


def check_writable(store: Store, name: str | None) -> None:
    """Declines changes where only reading is allowed."""
    if store.mode(name) in _READ_ONLY:
        where = "The registry" if name is None else f"Subject {name} in context {context_of(name)}"
        raise not_permitted(f"{where} is in read-only mode")


def check_mode(store: Store, subject: Subject, *, with_id: bool) -> None:
    """Declines a registration that the mode in force forbids."""
    check_writable(store, subject)
    is_import = store.mode(subject) in (Mode.IMPORT, Mode.FORWARD)
    if is_import != with_id:
        wanted = "import" if with_id else "read-write"
        raise not_permitted(
            f"Subject {subject} in context {context_of(subject)} is not in {wanted} mode"
        )


def find_registered(
    store: Store,
    subject: Subject,
    contents: Contents,
    equivalents: frozenset[int] = frozenset(),
    *,
    deleted: bool = False,
) -> Version | None:
    """The version that has these contents: as given, or with what the latest would hand on."""
    found = _find_same(store, subject, contents, equivalents, deleted=deleted)
    if found is not None:
        return found
    latest = store.latest(subject, deleted=deleted)
    previous = latest.contents if latest else None
    completed = governed(contents, previous, store.config(subject))
    if completed == contents:
        return None
    return _find_same(store, subject, completed, equivalents, deleted=deleted)


def _find_same(
    store: Store,
    subject: Subject,
    contents: Contents,
    equivalents: frozenset[int],
    *,
    deleted: bool,
) -> Version | None:
    exact = store.with_fingerprint(subject, contents.fingerprint(), deleted=deleted)
    if exact is not None:
        return exact
    for number in sorted(equivalents, reverse=True):
        one = store.versions.get(subject, {}).get(number)
        if one is None or (one.deleted and not deleted):
            continue
        if same_contract(contents, one.contents):
            return one
    return None


def _check_is_latest(store: Store, command: Register, found: Version) -> None:
    if command.version == -1 and found != store.latest(command.subject):
        raise invalid_schema("Schema does not equal the latest version")


def _next_number(store: Store, subject: Subject) -> int:
    newest = store.latest(subject, deleted=True)
    number = 1 if newest is None else newest.number + 1
    if number > VERSION_LAST:
        raise not_permitted(f"Subject {subject} has had all the versions it can have")
    return number


def _decide_store(
    store: Store, subject: Subject, number: int, contents: Contents, now: Millis
) -> Outcome[Event]:
    """A new version. Hidden ones with the same contents give way, unless others build on them."""
    context = context_of(subject)
    fingerprint = contents.fingerprint()
    id = store.id_of(fingerprint, context)
    if id is None:
        inside = store.contexts.get(context)
        id = 1 if inside is None else inside.last_id + 1
    version = Version(subject, number, id, contents, fingerprint, timestamp=now)
    superseded = [
        VersionRemoved(*one.key)
        for one in store.stored(subject)
        if one.deleted and one.fingerprint == fingerprint and one.number != number
        if not store.referrers_of(one.key, deleted=True)
    ]
    return Outcome(
        events=(*_opening(store, context), VersionStored(version), *superseded),
        replies=(reply(version),),
    )


def _opening(store: Store, context: str) -> tuple[Event, ...]:
    return () if context in store.contexts else (ContextMade(context),)


def _decide_import(store: Store, command: Register, id: int, now: Millis) -> Outcome[Event]:
    """A version with the id it has elsewhere. An id never changes its meaning."""
    subject, contents = command.subject, command.contents
    context = context_of(subject)
    fingerprint = contents.fingerprint()
    holder = store.by_id(id, context)
    if holder is not None and holder.fingerprint != fingerprint:
        raise not_permitted(f"Overwrite new schema with id {id} is not permitted.")
    for one in store.live(subject):
        if one.id == id and command.version in (0, -1, one.number):
            return answer(one)
    number = command.version if command.version > 0 else _next_number(store, subject)
    known = store.versions.get(subject, {}).get(number)
    if known is not None and known.id != id:
        raise not_permitted(
            f"Overwrite version {number} of subject {subject} with id {id} is not permitted."
        )
    version = Version(subject, number, id, contents, fingerprint, timestamp=now)
    return Outcome(
        events=(*_opening(store, context), VersionStored(version)),
        replies=(reply(version),),
    )
