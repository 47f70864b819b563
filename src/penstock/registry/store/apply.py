"""How each event changes what the registry knows. Nothing here can fail; all of it is idempotent.

Only records that were read back from the log come here, in its order, whichever node wrote them.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypeVar

from penstock.registry.store.events import (
    ContextCreated,
    Event,
    LogMarked,
    ModeSet,
    SubjectCleared,
    SubjectConfigSet,
    SubjectDeleted,
    Version,
    VersionRemoved,
    VersionStored,
)
from penstock.registry.store.state import RegistryState, SubjectContext, VersionKey
from penstock.registry.subject_names import Subject, context_of, normal

_Setting = TypeVar("_Setting")
logger: Final = logging.getLogger(__name__)


def apply(state: RegistryState, event: Event) -> None:
    """Change the state by one event."""
    state.changes += 1
    match event:
        case VersionStored(version):
            _apply_version(state, version)
        case VersionRemoved(subject, number):
            _remove(state, subject, number)
        case SubjectDeleted(subject, last_version):
            _soft_delete(state, subject, last_version)
        case SubjectCleared(subject):
            _clear(state, subject)
        case SubjectConfigSet(scope, config):
            _set(state.configs, scope, config)
        case ModeSet(scope, mode):
            _set(state.modes, scope, mode)
        case ContextCreated(context):
            _context(state, context)
        case LogMarked(last_ids):
            _apply_last_ids(state, last_ids)


def _soft_delete(state: RegistryState, subject: Subject, last_version: int) -> None:
    for version in state.live(subject):
        if version.number <= last_version:
            state.versions[subject][version.number] = replace(version, deleted=True)


def _clear(state: RegistryState, subject: Subject) -> None:
    for version in state.stored(subject):
        if version.deleted:
            _remove(state, subject, version.number)


def _apply_last_ids(state: RegistryState, last_ids: Mapping[str, int]) -> None:
    for context, last_id in last_ids.items():
        known = _context(state, context)
        known.last_id = max(known.last_id, last_id)


def _set(settings: dict[str | None, _Setting], scope: str | None, value: _Setting | None) -> None:
    if value is None:
        settings.pop(scope, None)
    else:
        settings[scope] = value


def _context(state: RegistryState, name: str) -> SubjectContext:
    return state.contexts.setdefault(name, SubjectContext())


def _apply_version(state: RegistryState, version: Version) -> None:
    name = context_of(version.subject)
    context = _context(state, name)
    users = context.ids.get(version.id, {})
    others = [key for key in users if key != version.key]
    if others:
        subject, number = others[0]
        if state.versions[subject][number].fingerprint != version.fingerprint:
            logger.warning(
                "%s version %d is ignored: its id %d belongs to other contents",
                version.subject,
                version.number,
                version.id,
            )
            return
    _remove(state, *version.key, keep=version)
    _insert(state, version)
    context.last_id = max(context.last_id, version.id)
    context.ids.setdefault(version.id, {})[version.key] = None
    context.by_fingerprint.setdefault(version.fingerprint, version.id)
    state.guids.setdefault(version.fingerprint, {}).setdefault(name, version.id)
    for key in referred_keys(version):
        state.referrers.setdefault(key, {})[version.key] = None


def _insert(state: RegistryState, version: Version) -> None:
    versions = state.versions.setdefault(version.subject, {})
    is_in_order = (
        not versions or version.number in versions or next(reversed(versions)) < version.number
    )
    versions[version.number] = version
    if not is_in_order:
        state.versions[version.subject] = dict(sorted(versions.items()))


def _remove(
    state: RegistryState, subject: Subject, number: int, keep: Version | None = None
) -> None:
    """Remove a version. One that is replaced by `keep` stays among the users of its id."""
    versions = state.versions.get(subject, {})
    known = versions.get(number)
    if known is None:
        return
    for key in referred_keys(known):
        referrers = state.referrers.get(key, {})
        referrers.pop(known.key, None)
        if not referrers:
            state.referrers.pop(key, None)
    if keep is None or keep.id != known.id or keep.fingerprint != known.fingerprint:
        _release_id(state, known)
    if keep is None:
        del versions[number]
        if not versions:
            del state.versions[subject]


def _release_id(state: RegistryState, version: Version) -> None:
    name = context_of(version.subject)
    context = _context(state, name)
    users = context.ids.get(version.id, {})
    users.pop(version.key, None)
    if users:
        return
    context.ids.pop(version.id, None)
    if context.by_fingerprint.get(version.fingerprint) == version.id:
        del context.by_fingerprint[version.fingerprint]
    ids = state.guids.get(version.fingerprint, {})
    if ids.get(name) == version.id:
        del ids[name]
    if not ids:
        state.guids.pop(version.fingerprint, None)


def referred_keys(version: Version) -> list[VersionKey]:
    """The versions that this one refers to."""
    context = context_of(version.subject)
    return [
        (normal(reference.subject, context), reference.version)
        for reference in version.contents.source.references
    ]
