"""The rules of settings and quotas: which keys a resource has, and which values are legal."""

from collections import Counter
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final

from penstock.config.broker_keys import (
    BROKER_KEYS,
    CLUSTER_WIDE_KEYS,
    GROUP_KEYS,
    MIN_INSYNC,
    check_broker_overrides,
    check_group_overrides,
)
from penstock.config.key_rows import Key
from penstock.config.resolve import ChangeKind, Layers, apply_changes
from penstock.config.topic_keys import TOPIC_KEYS, check_topic_overrides
from penstock.coordination.controller.apply import apply
from penstock.coordination.controller.commands import (
    AlterConfigs,
    AlterQuotas,
    QuotaChange,
    ResourceChange,
)
from penstock.coordination.controller.decide_topics import check_topic_name
from penstock.coordination.controller.each import Accepted, decide_each
from penstock.coordination.controller.elections import under_rules
from penstock.coordination.controller.events import (
    ConfigScope,
    ConfigSet,
    Event,
    QuotaSet,
    TopicEvent,
)
from penstock.coordination.controller.partition_changes import (
    changed_partitions,
    events_for,
)
from penstock.coordination.controller.settings import ControllerSettings
from penstock.coordination.controller.state import ClusterState
from penstock.errors import ErrorCode, Refused
from penstock.machine import Outcome, Step
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
    state: ClusterState, command: AlterConfigs, settings: ControllerSettings
) -> Outcome[Event]:
    """Change what can be changed; all changes to a resource are accepted, or none."""
    named = Counter((resource.scope, resource.name) for resource in command.resources)

    def alter(resource: ResourceChange) -> Accepted:
        if named[resource.scope, resource.name] > 1:
            raise Refused(ErrorCode.invalid_request, "A resource is named twice.")
        after = _altered(state, resource, settings)
        events = (after, *_under_new_rules(state, after, settings))
        if resource.scope is not ConfigScope.TOPIC:
            return Accepted(events)
        keys = ", ".join(change.name for change in resource.changes)
        return Accepted(events, story=(Step(resource.name, "settings changed: {}", (keys,)),))

    return decide_each(
        command.caller, command.resources, alter, validate_only=command.validate_only
    )


def _under_new_rules(
    state: ClusterState, after: ConfigSet, settings: ControllerSettings
) -> list[TopicEvent]:
    """With a lower `min.insync.replicas` the leader commits without those that were eligible."""
    before = state.overrides(after.scope, after.name)
    if before.get(MIN_INSYNC) == after.overrides.get(MIN_INSYNC):
        return []
    changed = state.fork()
    apply(changed, after)
    return events_for(changed_partitions(changed, settings, under_rules))


def _altered(
    state: ClusterState, resource: ResourceChange, settings: ControllerSettings
) -> ConfigSet:
    _check_resource(state, resource)
    names = [change.name for change in resource.changes]
    if len(set(names)) != len(names):
        raise Refused(ErrorCode.invalid_request, "A key is changed twice.")
    overrides = state.overrides(resource.scope, resource.name)
    if resource.replace:  # what a cluster stores from its start is changed, never removed
        is_cluster = resource.scope is ConfigScope.BROKER and not resource.name
        kept = CLUSTER_WIDE_KEYS if is_cluster else ()
        overrides = {name: value for name, value in overrides.items() if name in kept}
    layers = state.layers(settings.node_id, settings.static)
    scope = resource.scope.name.lower()
    after = apply_changes(
        _KEYS[resource.scope], overrides, resource.changes, scope=scope, inherited=layers
    )
    _check_after(resource, after, layers)
    return ConfigSet(resource.scope, resource.name, after)


def _check_resource(state: ClusterState, resource: ResourceChange) -> None:
    if resource.scope is not ConfigScope.BROKER and not resource.name:
        raise Refused(ErrorCode.invalid_request, "Only the settings of brokers have a default.")
    if resource.scope is ConfigScope.TOPIC and resource.name not in state.topics:
        check_topic_name(resource.name)
        raise Refused(
            ErrorCode.unknown_topic_or_partition, f"The topic '{resource.name}' does not exist."
        )
    if resource.scope is ConfigScope.BROKER and resource.name:
        is_known = resource.name.isdecimal() and NodeId(int(resource.name)) in state.brokers
        if not is_known:
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
            check_broker_overrides(after, touched, for_all=not resource.name)


def decide_alter_quotas(state: ClusterState, command: AlterQuotas) -> Outcome[Event]:
    """Change what can be changed; all changes to an entity are accepted, or none."""
    named = Counter(change.entity for change in command.changes)

    def alter(change: QuotaChange) -> Accepted:
        if named[change.entity] > 1:
            raise Refused(ErrorCode.invalid_request, "An entity is named twice.")
        return Accepted((_altered_quota(state, change),))

    return decide_each(command.caller, command.changes, alter, validate_only=command.validate_only)


def _altered_quota(state: ClusterState, change: QuotaChange) -> QuotaSet:
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
        if limit is None:  # of any name: removing what was never set is no error
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
    """Host names are not accepted: what they resolve to may change."""
    try:
        if address is not None:
            ip_address(address)
    except ValueError as error:
        raise Refused(ErrorCode.invalid_request, str(error)) from error


def _check_limit(name: str, limit: float) -> None:
    if not 0 < limit < float("inf"):
        raise Refused(ErrorCode.invalid_request, f"Quota {name} must be above 0")
    maximum = _WHOLE_RATES_MAX.get(name, limit)
    if limit > maximum:
        raise Refused(ErrorCode.invalid_request, f"Quota {name} must be at most {maximum:.0f}")
    if name in _WHOLE_RATES_MAX and limit != int(limit):
        raise Refused(ErrorCode.invalid_request, f"Quota {name} must be a whole number")
