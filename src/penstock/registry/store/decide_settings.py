"""The rules of settings and modes."""

from dataclasses import replace
from typing import Final

from penstock.machine import Outcome, Reply, Step
from penstock.registry.errors import (
    invalid_level,
    invalid_mode,
    malformed,
    not_permitted,
    subject_not_found,
)
from penstock.registry.store.commands import RemoveConfig, RemoveMode, SetConfig, SetMode
from penstock.registry.store.decide_register import check_writable
from penstock.registry.store.events import (
    Event,
    Mode,
    ModeSet,
    SubjectConfig,
    SubjectConfigSet,
    VersionRemoved,
)
from penstock.registry.store.rule_sets import check_rule_set
from penstock.registry.store.state import DEFAULTS, RegistryState
from penstock.registry.subject_names import split
from penstock.schemas.compatibility import Level

_POLICIES: Final = frozenset(("STRICT", "LENIENT", "LOGICAL"))
GLOBAL_STORY: Final = "global"  # the key of what happens to the global settings
_GLOBAL_ONLY: Final = frozenset((Mode.READONLY_OVERRIDE, Mode.FORWARD))


def decide_config(state: RegistryState, command: SetConfig) -> Outcome[Event]:
    """Merge what is given into the settings of a scope."""
    given = _checked(command.config)
    check_writable(state, command.scope)
    known = state.configs.get(command.scope, SubjectConfig())
    changed = replace(known, **{name: getattr(given, name) for name in command.members})
    keys = ", ".join(sorted(command.members))
    return Outcome(
        events=(SubjectConfigSet(command.scope, changed),),
        replies=(Reply(command.caller, changed),),
        story=(_step(command.scope, "settings changed: {}", keys),),
    )


def _step(scope: str | None, text: str, *values: object) -> Step:
    return Step(GLOBAL_STORY if scope is None else scope, text, values)


def _checked(config: SubjectConfig) -> SubjectConfig:
    level, policy = config.compatibility, config.policy
    if level is not None and level.upper() not in Level.__members__:
        raise invalid_level()
    if policy is not None and policy.upper() not in _POLICIES:
        raise malformed("compatibilityPolicy must be STRICT, LENIENT or LOGICAL")
    check_rule_set(config.default_rule_set)
    check_rule_set(config.override_rule_set)
    return replace(config, compatibility=level and level.upper(), policy=policy and policy.upper())


def decide_remove_config(state: RegistryState, command: RemoveConfig) -> Outcome[Event]:
    """Reply with the settings before it."""
    check_writable(state, command.scope)
    known = state.configs.get(command.scope)
    if known is None:
        if command.scope is None:
            return Outcome(replies=(Reply(command.caller, DEFAULTS),))
        raise subject_not_found(command.scope)
    return Outcome(
        events=(SubjectConfigSet(command.scope, None),),
        replies=(Reply(command.caller, known),),
        story=(_step(command.scope, "settings removed"),),
    )


def decide_mode(state: RegistryState, command: SetMode) -> Outcome[Event]:
    """Set or clear the mode of a scope. Importing ids needs a scope without subjects."""
    scope, mode = command.scope, command.mode
    if mode in _GLOBAL_ONLY and scope is not None and split(scope)[1]:
        raise invalid_mode()
    removed: list[Event] = []
    if mode is Mode.IMPORT and not command.force and state.mode(scope) is not Mode.IMPORT:
        for subject in state.in_scope(scope):
            if state.has_subject(subject):
                raise not_permitted("Cannot import since found existing subjects")
            removed += [VersionRemoved(*version.key) for version in state.stored(subject)]
    return Outcome(
        events=(*removed, ModeSet(scope, mode)),
        replies=(Reply(command.caller, mode),),
        story=(_step(scope, "mode set to {}", mode),),
    )


def decide_remove_mode(state: RegistryState, command: RemoveMode) -> Outcome[Event]:
    """Reply with the mode before it."""
    scope = command.scope
    inside = _scopes_inside(state, scope) if command.recursive else []
    known = state.modes.get(scope)
    if known is None and scope is not None and not inside:
        raise subject_not_found(scope)
    removed = ([scope] if known is not None else []) + inside
    return Outcome(
        events=tuple(ModeSet(each, None) for each in removed),
        replies=(Reply(command.caller, known or Mode.READWRITE),),
        story=tuple(_step(each, "mode removed") for each in removed),
    )


def _scopes_inside(state: RegistryState, scope: str | None) -> list[str | None]:
    if scope is None:
        return [each for each in state.modes if each is not None]
    context, local = split(scope)
    if local:
        return []
    return [
        each
        for each in state.modes
        if each not in (None, scope) and split(each or "")[0] == context
    ]
