"""The rules of settings and modes."""

from dataclasses import replace
from typing import Final

from penstock.machine import Outcome
from penstock.registry.errors import (
    invalid_level,
    invalid_mode,
    malformed,
    not_permitted,
    subject_not_found,
)
from penstock.registry.store.commands import RemoveConfig, RemoveMode, SetConfig, SetMode
from penstock.registry.store.decide_register import check_writable
from penstock.registry.store.events import Config, ConfigSet, Event, Mode, ModeSet, VersionRemoved
from penstock.registry.store.outcome import answer, reply
from penstock.registry.store.rule_sets import check_rule_set
from penstock.registry.store.state import DEFAULTS, Store
from penstock.registry.subject_names import split
from penstock.schemas.compatibility import Level

_POLICIES: Final = frozenset(("STRICT", "LENIENT", "LOGICAL"))
_GLOBAL_ONLY: Final = frozenset((Mode.READONLY_OVERRIDE, Mode.FORWARD))


def decide_config(store: Store, command: SetConfig) -> Outcome[Event]:
    """Merge what is given into what is there."""
    given = _checked(command.config)
    check_writable(store, command.scope)
    known = store.configs.get(command.scope, Config())
    changed = replace(known, **{name: getattr(given, name) for name in command.members})
    return Outcome(events=(ConfigSet(command.scope, changed),), replies=(reply(changed),))


def _checked(config: Config) -> Config:
    level, policy = config.compatibility, config.policy
    if level is not None and level.upper() not in Level.__members__:
        raise invalid_level()
    if policy is not None and policy.upper() not in _POLICIES:
        raise malformed("compatibilityPolicy must be STRICT, LENIENT or LOGICAL")
    check_rule_set(config.default_rule_set)
    check_rule_set(config.override_rule_set)
    return replace(config, compatibility=level and level.upper(), policy=policy and policy.upper())


def decide_remove_config(store: Store, command: RemoveConfig) -> Outcome[Event]:
    """The settings that were."""
    check_writable(store, command.scope)
    known = store.configs.get(command.scope)
    if known is None:
        if command.scope is None:
            return answer(DEFAULTS)
        raise subject_not_found(command.scope)
    return Outcome(events=(ConfigSet(command.scope, None),), replies=(reply(known),))


def decide_mode(store: Store, command: SetMode) -> Outcome[Event]:
    """Set or clear the mode of a scope. Where ids are imported there must be none before."""
    scope, mode = command.scope, command.mode
    if mode in _GLOBAL_ONLY and scope is not None and split(scope)[1]:
        raise invalid_mode()
    removed: list[Event] = []
    if mode is Mode.IMPORT and not command.force and store.mode(scope) is not Mode.IMPORT:
        for subject in store.in_scope(scope):
            if store.has_subject(subject):
                raise not_permitted("Cannot import since found existing subjects")
            removed += [VersionRemoved(*one.key) for one in store.stored(subject)]
    return Outcome(events=(*removed, ModeSet(scope, mode)), replies=(reply(mode),))


def decide_remove_mode(store: Store, command: RemoveMode) -> Outcome[Event]:
    """The mode that was."""
    scope = command.scope
    inside = _inside(store, scope) if command.recursive else []
    known = store.modes.get(scope)
    if known is None and scope is not None and not inside:
        raise subject_not_found(scope)
    scopes = ([scope] if known is not None else []) + inside
    was = known or Mode.READWRITE
    return Outcome(events=tuple(ModeSet(one, None) for one in scopes), replies=(reply(was),))


def _inside(store: Store, scope: str | None) -> list[str | None]:
    if scope is None:
        return [one for one in store.modes if one is not None]
    context, local = split(scope)
    if local:
        return []
    return [
        one for one in store.modes if one not in (None, scope) and split(one or "")[0] == context
    ]
