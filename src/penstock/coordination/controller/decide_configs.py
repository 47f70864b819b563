"""The rules of settings and quotas: who may set what, and to which values."""

from collections import Counter
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final

from penstock.config.broker_keys import (
    BROKER_KEYS,
    GROUP_KEYS,
    check_broker_overrides,
    check_group_overrides,
)
from penstock.config.key_rows import Key
from penstock.config.resolve import ChangeKind, Layers, apply_changes
from penstock.config.topic_keys import TOPIC_KEYS, check_topic_overrides
from penstock.coordination.controller.commands import (
    AlterConfigs,
    AlterQuotas,
    QuotaChange,
    ResourceChange,
)
from penstock.coordination.controller.decide_topics import check_topic_name
from penstock.coordination.controller.settings import ControllerRules
from penstock.coordination.controller.state import (
    Cluster,
    ConfigScope,
    ConfigSet,
    Event,
    QuotaSet,
)
from penstock.errors import ErrorCode, Refused
from penstock.machine import Outcome, Reply
from penstock.model import NodeId

_KEYS: Final[Mapping[ConfigScope, Mapping[str, Key]]] = {
    ConfigScope.TOPIC: TOPIC_KEYS,
    ConfigScope.BROKER: BROKER_KEYS,
    ConfigScope.GROUP: GROUP_KEYS,
}
USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
_RATES: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
_IP_RATES: Final = ("connection_creation_rate",)
_WHOLE_RATES_MAX: Final = {
    "producer_byte_rate": 2.0**63,
    "consumer_byte_rate": 2.0**63,
    "connection_creation_rate": 2.0**31 - 1,
}


def decide_alter_configs(
    state: Cluster, command: AlterConfigs, rules: ControllerRules
) -> Outcome[Event]:
    """Change what can be changed; a resource changes whole or not at all."""
    named = Counter((resource.scope, resource.name) for resource in command.resources)
    events: list[Event] = []
    answers: list[Refused | None] = []
    for resource in command.resources:
        try:
            if named[resource.scope, resource.name] > 1:
                raise Refused(ErrorCode.invalid_request, "A resource is named twice.")
            events.append(_altered(state, resource, rules))
            answers.append(None)
        except Refused as refusal:
            answers.append(refusal)
    reply = Reply(command.caller, answers)
    return Outcome(events=() if command.validate_only else tuple(events), replies=(reply,))


def _altered(state: Cluster, resource: ResourceChange, rules: ControllerRules) -> ConfigSet:
    _check_resource(state, resource)
    names = [change.name for change in resource.changes]
    if len(set(names)) != len(names):
        raise Refused(ErrorCode.invalid_request, "A key is changed twice.")
    overrides = {} if resource.replace else state.overrides(resource.scope, resource.name)
    layers = state.layers(rules.node_id, rules.static)
    scope = resource.scope.name.lower()
    after = apply_changes(
        _KEYS[resource.scope], overrides, resource.changes, scope=scope, inherited=layers
    )
    _check_after(resource, after, layers)
    return ConfigSet(resource.scope, resource.name, after)


def _check_resource(state: Cluster, resource: ResourceChange) -> None:
    if resource.scope is not ConfigScope.BROKER and not resource.name:
        raise Refused(ErrorCode.invalid_request, "Only the settings of brokers have a default.")
    if resource.scope is ConfigScope.TOPIC and resource.name not in state.topics:
        check_topic_name(resource.name)
        raise Refused(
            ErrorCode.unknown_topic_or_partition, f"The topic '{resource.name}' does not exist."
        )
    if resource.scope is ConfigScope.BROKER and resource.name:
        known = resource.name.isdecimal() and NodeId(int(resource.name)) in state.brokers
        if not known:
            raise Refused(ErrorCode.invalid_request, f"There is no broker '{resource.name}'.")


def _check_after(resource: ResourceChange, after: Mapping[str, str], layers: Layers) -> None:
    match resource.scope:
        case ConfigScope.TOPIC:
            check_topic_overrides(after, layers)
        case ConfigScope.GROUP:
            check_group_overrides(after, layers)
        case ConfigScope.BROKER:
            touched = [
                change.name for change in resource.changes if change.kind is not ChangeKind.DELETE
            ]
            check_broker_overrides(after, touched)


def decide_alter_quotas(state: Cluster, command: AlterQuotas) -> Outcome[Event]:
    """Change what can be changed; an entity changes whole or not at all."""
    named = Counter(change.entity for change in command.changes)
    events: list[Event] = []
    answers: list[Refused | None] = []
    for change in command.changes:
        try:
            if named[change.entity] > 1:
                raise Refused(ErrorCode.invalid_request, "An entity is named twice.")
            events.append(_altered_quota(state, change))
            answers.append(None)
        except Refused as refusal:
            answers.append(refusal)
    reply = Reply(command.caller, answers)
    return Outcome(events=() if command.validate_only else tuple(events), replies=(reply,))


def _altered_quota(state: Cluster, change: QuotaChange) -> QuotaSet:
    kinds = {kind for kind, _ in change.entity}
    if kinds not in ({USER}, {CLIENT_ID}, {USER, CLIENT_ID}, {IP}) or len(kinds) != len(
        change.entity
    ):
        raise Refused(
            ErrorCode.invalid_request,
            "A quota is for a user, a client-id, both together, or an ip.",
        )
    if any(name == "" for _, name in change.entity):
        raise Refused(ErrorCode.invalid_request, "An entity's name is empty; null is the default.")
    if kinds == {IP}:
        _check_address(change.entity[0][1])
    names = [name for name, _ in change.limits]
    if len(set(names)) != len(names):
        raise Refused(ErrorCode.invalid_request, "A quota of an entity is changed twice.")
    rates = _IP_RATES if kinds == {IP} else _RATES
    limits = dict(state.quotas.get(change.entity, {}))
    for name, limit in change.limits:
        if limit is None:  # of any name: what was never set is gone already
            limits.pop(name, None)
            continue
        if name not in rates:
            raise Refused(
                ErrorCode.invalid_request, f"Unknown quota key {name}; known: {', '.join(rates)}"
            )
        _check_limit(name, limit)
        limits[name] = limit
    return QuotaSet(change.entity, limits)


def _check_address(address: str | None) -> None:
    """Names of hosts are not looked up here: the same name means another address tomorrow."""
    try:
        if address is not None:
            ip_address(address)
    except ValueError as error:
        raise Refused(ErrorCode.invalid_request, str(error)) from error


def _check_limit(name: str, limit: float) -> None:
    if not 0 < limit < float("inf"):
        raise Refused(ErrorCode.invalid_request, f"Quota {name} must be above 0")
    most = _WHOLE_RATES_MAX.get(name, limit)
    if limit > most:
        raise Refused(ErrorCode.invalid_request, f"Quota {name} is {most:.0f} at most")
    if name in _WHOLE_RATES_MAX and limit != int(limit):
        raise Refused(ErrorCode.invalid_request, f"Quota {name} must be a whole number")
