"""The rules of deleting: first softly, then for good, and never what others build on."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from penstock.machine import Outcome
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
    ConfigSet,
    Event,
    Marked,
    ModeSet,
    SubjectDeleted,
    Version,
    VersionRemoved,
    VersionStored,
)
from penstock.registry.store.outcome import reply
from penstock.registry.store.state import Store, VersionKey


def decide_delete_subject(store: Store, command: DeleteSubject) -> Outcome[Event]:
    """The numbers of the versions that go."""
    subject = command.subject
    check_writable(store, subject)
    stored, live = store.stored(subject), store.live(subject)
    if not stored:
        raise subject_not_found(subject)
    if command.permanent:
        if live:
            raise subject_not_soft_deleted(subject)
        _check_unreferenced(store, stored, deleted=True)
        events = (*(VersionRemoved(*one.key) for one in stored), *_emptied(store, stored))
        return Outcome(events=events, replies=(reply([one.number for one in stored]),))
    if not live:
        raise subject_soft_deleted(subject)
    _check_unreferenced(store, live, deleted=False)
    return Outcome(
        events=(SubjectDeleted(subject, live[-1].number),),
        replies=(reply([one.number for one in live]),),
    )


def decide_delete_version(store: Store, command: DeleteVersion) -> Outcome[Event]:
    """The number of the version that goes."""
    subject = command.subject
    check_writable(store, subject)
    if not store.has_subject(subject, deleted=True):
        raise subject_not_found(subject)
    if command.number == -1:
        one = store.latest(subject, deleted=command.permanent)
    else:
        one = store.versions[subject].get(command.number)
    if one is None:
        raise version_not_found("latest" if command.number == -1 else command.number)
    if one.deleted and not command.permanent:
        raise version_soft_deleted(*one.key)
    if not one.deleted and command.permanent:
        raise version_not_soft_deleted(*one.key)
    if store.referrers_of(one.key, deleted=command.permanent):
        raise reference_exists(*one.key)
    answer = (reply(one.number),)
    if not command.permanent:
        return Outcome(events=(VersionStored(replace(one, deleted=True)),), replies=answer)
    return Outcome(events=(VersionRemoved(*one.key), *_emptied(store, [one])), replies=answer)


def _check_unreferenced(store: Store, versions: Iterable[Version], *, deleted: bool) -> None:
    for one in versions:
        referrers = store.referrers_of(one.key, deleted=deleted)
        if any(other.subject != one.subject for other in referrers):
            raise reference_exists(*one.key)


def _emptied(store: Store, removed: Sequence[Version]) -> tuple[Event, ...]:
    """What follows when versions of one subject are gone: its settings, and ids to remember."""
    subject = removed[0].subject
    events: list[Event] = []
    if len(store.versions[subject]) == len(removed):
        if subject in store.configs:
            events.append(ConfigSet(subject, None))
        if subject in store.modes:
            events.append(ModeSet(subject, None))
    last_ids = unwitnessed_ids(store, {one.key for one in removed})
    if last_ids != unwitnessed_ids(store):
        events.append(Marked(last_ids))
    return tuple(events)


def unwitnessed_ids(store: Store, without: Collection[VersionKey] = ()) -> dict[str, int]:
    """The last id of each context where no version would tell it any more."""
    found = {}
    for name, context in store.contexts.items():
        used = (id for id, users in context.ids.items() if any(key not in without for key in users))
        if max(used, default=0) < context.last_id:
            found[name] = context.last_id
    return found
