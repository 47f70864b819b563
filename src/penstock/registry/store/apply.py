"""How events change what the registry knows. Nothing here can fail, or means more the second time.

Only records that went through the log come here, in its order: also those another registry wrote.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from penstock.registry.store.events import (
    ConfigSet,
    ContextMade,
    Event,
    Marked,
    ModeSet,
    SubjectCleared,
    SubjectDeleted,
    Version,
    VersionRemoved,
    VersionStored,
)
from penstock.registry.store.state import Context, Store, VersionKey
from penstock.registry.subject_names import Subject, context_of, normal

_Setting = TypeVar("_Setting")
logger = logging.getLogger(__name__)


def apply(store: Store, event: Event) -> None:
    """Take one event into account."""
    match event:
        case VersionStored(version):
            _apply_version(store, version)
        case VersionRemoved(subject, number):
            _remove(store, subject, number)
        case SubjectDeleted(subject, last_version):
            _hide(store, subject, last_version)
        case SubjectCleared(subject):
            _clear(store, subject)
        case ConfigSet(scope, config):
            _set(store.configs, scope, config)
        case ModeSet(scope, mode):
            _set(store.modes, scope, mode)
        case ContextMade(context):
            _context(store, context)
        case Marked(last_ids):
            _remember_ids(store, last_ids)


def _hide(store: Store, subject: Subject, last_version: int) -> None:
    for one in store.live(subject):
        if one.number <= last_version:
            store.versions[subject][one.number] = replace(one, deleted=True)


def _clear(store: Store, subject: Subject) -> None:
    for one in store.stored(subject):
        if one.deleted:
            _remove(store, subject, one.number)


def _remember_ids(store: Store, last_ids: Mapping[str, int]) -> None:
    for context, last_id in last_ids.items():
        inside = _context(store, context)
        inside.last_id = max(inside.last_id, last_id)


def _set(settings: dict[str | None, _Setting], scope: str | None, value: _Setting | None) -> None:
    if value is None:
        settings.pop(scope, None)
    else:
        settings[scope] = value


def _context(store: Store, name: str) -> Context:
    return store.contexts.setdefault(name, Context())


def _apply_version(store: Store, version: Version) -> None:
    name = context_of(version.subject)
    context = _context(store, name)
    users = context.ids.get(version.id, {})
    others = [key for key in users if key != version.key]
    if others:
        subject, number = others[0]
        if store.versions[subject][number].fingerprint != version.fingerprint:
            logger.warning(
                "%s version %d was left out: its id %d belongs to other contents",
                version.subject,
                version.number,
                version.id,
            )
            return
    _remove(store, *version.key, keep=version)
    _insert(store, version)
    context.last_id = max(context.last_id, version.id)
    context.ids.setdefault(version.id, {})[version.key] = None
    context.by_fingerprint.setdefault(version.fingerprint, version.id)
    store.guids.setdefault(version.fingerprint, {}).setdefault(name, version.id)
    for key in _referred(version):
        store.referrers.setdefault(key, {})[version.key] = None


def _insert(store: Store, version: Version) -> None:
    versions = store.versions.setdefault(version.subject, {})
    is_in_order = (
        not versions or version.number in versions or next(reversed(versions)) < version.number
    )
    versions[version.number] = version
    if not is_in_order:
        store.versions[version.subject] = dict(sorted(versions.items()))


def _remove(store: Store, subject: Subject, number: int, keep: Version | None = None) -> None:
    """Forget a version. One that is only written anew keeps its place among the users of its id."""
    versions = store.versions.get(subject, {})
    known = versions.get(number)
    if known is None:
        return
    for key in _referred(known):
        referrers = store.referrers.get(key, {})
        referrers.pop(known.key, None)
        if not referrers:
            store.referrers.pop(key, None)
    if keep is None or keep.id != known.id or keep.fingerprint != known.fingerprint:
        _release_id(store, known)
    if keep is None:
        del versions[number]
        if not versions:
            del store.versions[subject]


def _release_id(store: Store, version: Version) -> None:
    name = context_of(version.subject)
    context = _context(store, name)
    users = context.ids.get(version.id, {})
    users.pop(version.key, None)
    if users:
        return
    context.ids.pop(version.id, None)
    if context.by_fingerprint.get(version.fingerprint) == version.id:
        del context.by_fingerprint[version.fingerprint]
    places = store.guids.get(version.fingerprint, {})
    if places.get(name) == version.id:
        del places[name]
    if not places:
        store.guids.pop(version.fingerprint, None)


def _referred(version: Version) -> list[VersionKey]:
    context = context_of(version.subject)
    return [
        (normal(one.subject, context), one.version) for one in version.contents.source.references
    ]
