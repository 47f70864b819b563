"""The rules of registering: which version is the same schema, and ids and numbers of new ones."""

from penstock.machine import Outcome, Reply, Step
from penstock.model import Millis
from penstock.registry.errors import (
    breaks_readers,
    incompatible,
    invalid_schema,
    not_permitted,
)
from penstock.registry.store.commands import FindSchema, Register
from penstock.registry.store.events import (
    Contents,
    ContextCreated,
    Event,
    Mode,
    Version,
    VersionRemoved,
    VersionStored,
)
from penstock.registry.store.examination import (
    Examination,
    Outdated,
    SchemaProposal,
    contents_of,
    level_of,
    snapshot_to_register,
)
from penstock.registry.store.rule_sets import (
    check_rule_set,
    governed,
    has_version,
    same_contract,
    with_version,
)
from penstock.registry.store.state import VERSION_LAST, RegistryState
from penstock.registry.subject_names import Subject, context_of
from penstock.schemas.compatibility import incompatibility_messages
from penstock.schemas.model import InvalidSchemaError
from penstock.schemas.reader_break import reader_break_messages

_READ_ONLY = (Mode.READONLY, Mode.READONLY_OVERRIDE)
_NO_VERSIONS: frozenset[int] = frozenset()


def decide_find(state: RegistryState, command: FindSchema) -> Outcome[Event]:
    """The version that is this schema: with the same text, or in another form."""
    proposal, examination, deleted = command.proposal, command.examination, command.deleted
    contents = contents_of(proposal, examination)
    version = find_registered(state, proposal.subject, contents, deleted=deleted)
    equivalents = examination.equivalent_versions
    if version is None and equivalents is None:
        return Outcome(replies=(Reply(command.caller, Outdated()),))
    if version is None:
        version = find_registered(
            state, proposal.subject, contents, equivalents or _NO_VERSIONS, deleted=deleted
        )
    return Outcome(replies=(Reply(command.caller, version),))


def decide_register(state: RegistryState, command: Register, now: Millis) -> Outcome[Event]:
    """The version that is this schema, or a new one."""
    proposal, examination = command.proposal, command.examination
    if not _is_current(state, proposal, examination):
        return Outcome(replies=(Reply(command.caller, Outdated()),))
    check_mode(state, proposal.subject, with_id=proposal.id is not None)
    if proposal.id is not None:
        return _decide_import(state, command, proposal.id, now)
    equivalents = examination.equivalent_versions
    if equivalents is None:
        return Outcome(replies=(Reply(command.caller, Outdated()),))
    contents = contents_of(proposal, examination)
    known = find_registered(state, proposal.subject, contents, equivalents)
    if known is not None:
        _check_is_latest(state, proposal, known)
        return Outcome(replies=(Reply(command.caller, known),))
    if proposal.version == -1:
        raise invalid_schema("Schema does not equal the latest version")
    number, contents = _next_version(state, proposal, contents)
    if not proposal.force and examination.compatibility is None:
        return Outcome(replies=(Reply(command.caller, Outdated()),))
    _check_examination(state, proposal.subject, examination)
    return _decide_store(state, command, number, contents, now)


def _is_current(state: RegistryState, proposal: SchemaProposal, examination: Examination) -> bool:
    """Whether an examination of this state would give the same results."""
    if examination.as_of == state.changes:
        return True
    try:
        today = examination.snapshot.today
        return snapshot_to_register(state, proposal, today) == examination.snapshot
    except InvalidSchemaError:  # a reference was deleted
        return False


def _next_version(
    state: RegistryState, proposal: SchemaProposal, contents: Contents
) -> tuple[int, Contents]:
    """The number of a new version, and its contents with what the settings add."""
    subject = proposal.subject
    latest = state.latest(subject)
    contents = governed(contents, latest.contents if latest else None, state.config(subject))
    check_rule_set(contents.rule_set)
    number = _next_number(state, subject)
    if proposal.version > 0 and proposal.version != number:
        raise invalid_schema(f"Version {proposal.version} is not one more than the latest version")
    # A tagged schema carries its number in its metadata, as if it had been given.
    is_numbered = proposal.tagging is not None or proposal.version > 0
    if is_numbered or (latest is not None and has_version(latest.contents.metadata)):
        contents = contents._replace(metadata=with_version(contents.metadata, number))
    return number, contents


def _check_examination(state: RegistryState, subject: Subject, examination: Examination) -> None:
    """Decline what the level of the subject forbids, or what breaks a declared reader."""
    compatibility = examination.compatibility
    if compatibility is not None and not compatibility.is_compatible:
        level = level_of(state.config(subject))
        raise incompatible(subject, incompatibility_messages(compatibility, level))
    if examination.reader_breaks:
        raise breaks_readers(subject, reader_break_messages(examination.reader_breaks))


def check_writable(state: RegistryState, name: str | None) -> None:
    """Declines changes in a read-only mode."""
    if state.mode(name) in _READ_ONLY:
        where = "The registry" if name is None else f"Subject {name} in context {context_of(name)}"
        raise not_permitted(f"{where} is in read-only mode")


def check_mode(state: RegistryState, subject: Subject, *, with_id: bool) -> None:
    """Declines a registration that the mode in force forbids."""
    check_writable(state, subject)
    is_import = state.mode(subject) in (Mode.IMPORT, Mode.FORWARD)
    if is_import != with_id:
        required = "import" if with_id else "read-write"
        raise not_permitted(
            f"Subject {subject} in context {context_of(subject)} is not in {required} mode"
        )


def find_registered(
    state: RegistryState,
    subject: Subject,
    contents: Contents,
    equivalents: frozenset[int] = _NO_VERSIONS,
    *,
    deleted: bool = False,
) -> Version | None:
    """The version with these contents: as given, or with what the latest version passes on."""
    version = _find_same(state, subject, contents, equivalents, deleted=deleted)
    if version is not None:
        return version
    latest = state.latest(subject, deleted=deleted)
    previous = latest.contents if latest else None
    completed = governed(contents, previous, state.config(subject))
    if completed == contents:
        return None
    return _find_same(state, subject, completed, equivalents, deleted=deleted)


def _find_same(
    state: RegistryState,
    subject: Subject,
    contents: Contents,
    equivalents: frozenset[int],
    *,
    deleted: bool,
) -> Version | None:
    exact = state.with_fingerprint(subject, contents.fingerprint(), deleted=deleted)
    if exact is not None:
        return exact
    for number in sorted(equivalents, reverse=True):
        version = state.versions.get(subject, {}).get(number)
        if version is None or (version.deleted and not deleted):
            continue
        if same_contract(contents, version.contents):
            return version
    return None


def _check_is_latest(state: RegistryState, proposal: SchemaProposal, version: Version) -> None:
    if proposal.version == -1 and version != state.latest(proposal.subject):
        raise invalid_schema("Schema does not equal the latest version")


def _next_number(state: RegistryState, subject: Subject) -> int:
    newest = state.latest(subject, deleted=True)
    number = 1 if newest is None else newest.number + 1
    if number > VERSION_LAST:
        raise not_permitted(f"Subject {subject} has had all the versions it can have")
    return number


def _decide_store(
    state: RegistryState, command: Register, number: int, contents: Contents, now: Millis
) -> Outcome[Event]:
    """A new version. It replaces soft deleted ones with the same contents and no referrers."""
    subject = command.proposal.subject
    context = context_of(subject)
    fingerprint = contents.fingerprint()
    schema_id = state.id_of(fingerprint, context)
    if schema_id is None:
        known = state.contexts.get(context)
        schema_id = 1 if known is None else known.last_id + 1
    version = Version(subject, number, schema_id, contents, fingerprint, timestamp=now)
    replaced = [
        VersionRemoved(*each.key)
        for each in state.stored(subject)
        if each.deleted and each.fingerprint == fingerprint and each.number != number
        if not state.referrers_of(each.key, deleted=True)
    ]
    return _registered(state, command, version, *replaced)


def _registered(
    state: RegistryState, command: Register, version: Version, *replaced: Event
) -> Outcome[Event]:
    context = context_of(version.subject)
    created = () if context in state.contexts else (ContextCreated(context),)
    step = Step(version.subject, "version {} registered with id {}", (version.number, version.id))
    return Outcome(
        events=(*created, VersionStored(version), *replaced),
        replies=(Reply(command.caller, version),),
        story=(step,),
    )


def _decide_import(
    state: RegistryState, command: Register, schema_id: int, now: Millis
) -> Outcome[Event]:
    """A version with the id it has in another registry. An id never changes its meaning."""
    proposal = command.proposal
    subject = proposal.subject
    contents = contents_of(proposal, command.examination)
    context = context_of(subject)
    fingerprint = contents.fingerprint()
    holder = state.by_id(schema_id, context)
    if holder is not None and holder.fingerprint != fingerprint:
        raise not_permitted(f"Overwrite new schema with id {schema_id} is not permitted.")
    for version in state.live(subject):
        if version.id == schema_id and proposal.version in (0, -1, version.number):
            return Outcome(replies=(Reply(command.caller, version),))
    number = proposal.version if proposal.version > 0 else _next_number(state, subject)
    known = state.versions.get(subject, {}).get(number)
    if known is not None and known.id != schema_id:
        raise not_permitted(
            f"Overwrite version {number} of subject {subject} with id {schema_id} is not permitted."
        )
    version = Version(subject, number, schema_id, contents, fingerprint, timestamp=now)
    return _registered(state, command, version)
