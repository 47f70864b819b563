"""The rules of deleting: soft, then permanent, and never what other schemas refer to."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from penstock.machine import Outcome, Reply, Step
from penstock.registry.errors import (
    reference_exists,
    subject_not_found,
    subject_not_soft_deleted,
    subject_soft_deleted,
    version_not_found,
    version_not_soft_deleted,
    version_soft_deleted,
)
from penstock.registry.store.commands import DeleteSubject, DeleteVersion
from penstock.registry.store.decide_register import check_writable
from penstock.registry.store.events import (
    Event,
    LogMarked,
    ModeSet,
    SubjectConfigSet,
    SubjectDeleted,
    Version,
    VersionRemoved,
    VersionStored,
)
from penstock.registry.store.state import RegistryState, VersionKey


def decide_delete_subject(state: RegistryState, command: DeleteSubject) -> Outcome[Event]:
    """Reply with the numbers of the deleted versions."""
    subject = command.subject
    check_writable(state, subject)
    stored, live = state.stored(subject), state.live(subject)
    if not stored:
        raise subject_not_found(subject)
    if command.permanent:
        if live:
            raise subject_not_soft_deleted(subject)
        _check_unreferenced(state, stored, deleted=True)
        removed = [VersionRemoved(*version.key) for version in stored]
        return _deleted(command, stored, *removed, *_after_removal(state, stored))
    if not live:
        raise subject_soft_deleted(subject)
    _check_unreferenced(state, live, deleted=False)
    return _deleted(command, live, SubjectDeleted(subject, live[-1].number))


def _deleted(command: DeleteSubject, versions: Sequence[Version], *events: Event) -> Outcome[Event]:
    how = "permanently" if command.permanent else "softly"
    step = Step(command.subject, "{} version(s) deleted {}", (len(versions), how), is_logged=True)
    numbers = [version.number for version in versions]
    return Outcome(events=events, replies=(Reply(command.caller, numbers),), story=(step,))


def decide_delete_version(state: RegistryState, command: DeleteVersion) -> Outcome[Event]:
    """Reply with the number of the deleted version."""
    subject = command.subject
    check_writable(state, subject)
    if not state.has_subject(subject, deleted=True):
        raise subject_not_found(subject)
    if command.number == -1:
        version = state.latest(subject, deleted=command.permanent)
    else:
        version = state.versions[subject].get(command.number)
    if version is None:
        raise version_not_found("latest" if command.number == -1 else command.number)
    if version.deleted and not command.permanent:
        raise version_soft_deleted(*version.key)
    if not version.deleted and command.permanent:
        raise version_not_soft_deleted(*version.key)
    if state.referrers_of(version.key, deleted=command.permanent):
        raise reference_exists(*version.key)
    events: tuple[Event, ...] = (VersionStored(replace(version, deleted=True)),)
    if command.permanent:
        events = (VersionRemoved(*version.key), *_after_removal(state, [version]))
    how = "permanently" if command.permanent else "softly"
    return Outcome(
        events=events,
        replies=(Reply(command.caller, version.number),),
        story=(Step(subject, "version {} deleted {}", (version.number, how), is_logged=True),),
    )


def _check_unreferenced(
    state: RegistryState, versions: Iterable[Version], *, deleted: bool
) -> None:
    for version in versions:
        referrers = state.referrers_of(version.key, deleted=deleted)
        if any(other.subject != version.subject for other in referrers):
            raise reference_exists(*version.key)


def _after_removal(state: RegistryState, removed: Sequence[Version]) -> tuple[Event, ...]:
    """What follows when versions of one subject are removed: its settings, and ids to record."""
    subject = removed[0].subject
    events: list[Event] = []
    if len(state.versions[subject]) == len(removed):
        if subject in state.configs:
            events.append(SubjectConfigSet(subject, None))
        if subject in state.modes:
            events.append(ModeSet(subject, None))
    last_ids = unrecorded_ids(state, {version.key for version in removed})
    if last_ids != unrecorded_ids(state):
        events.append(LogMarked(last_ids))
    return tuple(events)


def unrecorded_ids(state: RegistryState, without: Collection[VersionKey] = ()) -> dict[str, int]:
    """The last id of each context that no version has any more."""
    last_ids = {}
    for name, context in state.contexts.items():
        used = (
            schema_id
            for schema_id, users in context.ids.items()
            if any(key not in without for key in users)
        )
        if max(used, default=0) < context.last_id:
            last_ids[name] = context.last_id
    return last_ids
