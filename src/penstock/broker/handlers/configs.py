"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources.

Topics, brokers and groups live with the controller; log levels live in this process.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kio.static.protocol import Entity

from penstock.broker.handler import Answer, Context, Handler
from penstock.broker.handlers.replies import (
    controller_of,
    error_fields,
    respond,
    when_controller_decided,
)
from penstock.broker.metadata_image import ClusterController
from penstock.config.broker_keys import BROKER_KEYS, GROUP_KEYS
from penstock.config.key_rows import Key, UpdateMode, ValueType
from penstock.config.resolve import (
    ChangeKind,
    ConfigChange,
    ConfigSource,
    Layers,
    effective_setting,
    settings_by_precedence,
)
from penstock.config.topic_keys import TOPIC_KEYS
from penstock.coordination.controller.commands import AlterConfigs, ResourceChange
from penstock.coordination.controller.decide_topics import check_topic_name
from penstock.coordination.controller.events import ConfigScope
from penstock.errors import ErrorCode, Refused
from penstock.model import NodeId

DESCRIBE_CONFIGS: Final = 32
ALTER_CONFIGS: Final = 33
INCREMENTAL_ALTER_CONFIGS: Final = 44
LIST_CONFIG_RESOURCES: Final = 74

BROKER_LOGGER: Final = 8  # a resource type beside those of ConfigScope
CLIENT_METRICS: Final = 16
LOGGER_ROOT: Final = "penstock"
_LEVELS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG,
}


def described_configs(
    keys: Mapping[str, Key],
    own: Mapping[str, str],
    source: ConfigSource,
    layers: Layers,
    *,
    wanted: Sequence[str] | None = None,
    with_synonyms: bool = False,
    with_documentation: bool = False,
) -> list[dict[str, Any]]:
    """The rows of DescribeConfigs: every key, or those wanted."""
    rows = []
    for key in keys.values():
        if wanted is not None and key.name not in wanted:
            continue
        setting = effective_setting(key, own, source, layers)
        synonyms = settings_by_precedence(key, own, source, layers) if with_synonyms else ()
        rows.append(
            {
                "name": key.name,
                "value": None if key.sensitive else setting.value,
                "read_only": source is ConfigSource.STATIC_BROKER
                and key.update_mode is UpdateMode.READ_ONLY,
                "config_source": setting.source,
                "is_sensitive": key.sensitive,
                "synonyms": [] if key.sensitive else [_synonym(each) for each in synonyms],
                "config_type": key.value_type,
                "documentation": key.doc if with_documentation else None,
            }
        )
    return rows


def _synonym(setting: Any) -> dict[str, Any]:
    return {"name": setting.name, "value": setting.value, "source": setting.source}


def describe_configs(context: Context, request: Any) -> Answer:
    """The settings of each resource, or why it has none."""
    cluster = controller_of(context)
    results = []
    for resource in request.resources:
        named = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
        try:
            rows = _described(cluster, resource, request)
            results.append({**named, **error_fields(None), "configs": rows})
        except Refused as refusal:
            results.append({**named, **error_fields(refusal), "configs": []})
    return respond(context, results=results)


def _described(cluster: ClusterController, resource: Any, request: Any) -> list[dict[str, Any]]:
    wanted = resource.configuration_keys or None  # as in Kafka: no names are all names
    if resource.resource_type == BROKER_LOGGER:
        _check_broker(cluster, resource.resource_name, default_allowed=False)
        return _described_loggers(wanted)
    scope = _scope(resource.resource_type)
    name = resource.resource_name
    keys, own, source = _looked_up(cluster, scope, name)
    layers = cluster.layers
    if scope is ConfigScope.BROKER and not name:  # only what was set for all brokers
        keys = {key: keys[key] for key in layers.defaults if key in keys}
        layers = Layers({}, layers.defaults, {})
    return described_configs(
        keys,
        own,
        source,
        layers,
        wanted=wanted,
        with_synonyms=request.include_synonyms,
        with_documentation=getattr(request, "include_documentation", False),
    )


def _looked_up(
    cluster: ClusterController, scope: ConfigScope, name: str
) -> tuple[Mapping[str, Key], Mapping[str, str], ConfigSource]:
    match scope:
        case ConfigScope.TOPIC:
            check_topic_name(name)
            if cluster.topic(name) is None:
                raise Refused(ErrorCode.unknown_topic_or_partition, f"there is no topic '{name}'")
            return TOPIC_KEYS, cluster.state.overrides(scope, name), ConfigSource.TOPIC
        case ConfigScope.GROUP:
            if not name:
                raise Refused(ErrorCode.invalid_request, "a group has a name")
            return GROUP_KEYS, cluster.state.overrides(scope, name), ConfigSource.GROUP
        case ConfigScope.BROKER:
            _check_broker(cluster, name, default_allowed=True)
            return BROKER_KEYS, {}, ConfigSource.STATIC_BROKER


def _scope(resource_type: int) -> ConfigScope:
    if resource_type in ConfigScope.__members__.values():
        return ConfigScope(resource_type)
    if resource_type == CLIENT_METRICS:
        raise Refused(ErrorCode.invalid_request, "this broker collects no metrics of clients")
    raise Refused(ErrorCode.invalid_request, f"there are no resources of type {resource_type}")


def _check_broker(cluster: ClusterController, name: str, *, default_allowed: bool) -> None:
    if not name and default_allowed:
        return
    if not name.isdecimal():
        raise Refused(ErrorCode.invalid_request, f"'{name}' is not the number of a broker")
    if NodeId(int(name)) != cluster.node_id:
        raise Refused(
            ErrorCode.invalid_request,
            f"broker {name} was asked for, and this is broker {cluster.node_id}",
        )


def _described_loggers(wanted: Sequence[str] | None) -> list[dict[str, Any]]:
    known = [LOGGER_ROOT, *sorted(_loggers())]
    return [
        {
            "name": name,
            "value": _level_name(logging.getLogger(name).getEffectiveLevel()),
            "read_only": False,
            "config_source": ConfigSource.BROKER_LOGGER,
            "is_sensitive": False,
            "synonyms": [],
            "config_type": ValueType.STRING,
        }
        for name in known
        if wanted is None or name in wanted
    ]


def _loggers() -> list[str]:
    names = logging.Logger.manager.loggerDict
    return [name for name in names if name.startswith(LOGGER_ROOT + ".")]


def _level_name(level: int) -> str:
    return next((name for name, value in _LEVELS.items() if level >= value), "DEBUG")


def incremental_alter_configs(context: Context, request: Any) -> Answer:
    """Set, take away, add to or subtract from single keys."""
    resources = [
        (
            resource.resource_type,
            resource.resource_name,
            tuple(
                (config.name, config.config_operation, config.value) for config in resource.configs
            ),
        )
        for resource in request.resources
    ]
    return _altered(context, request, resources, replace=False)


def alter_configs(context: Context, request: Any) -> Answer:
    """Replace all a resource sets: what is not named goes back to its default."""
    resources = [
        (
            resource.resource_type,
            resource.resource_name,
            tuple((config.name, ChangeKind.SET, config.value) for config in resource.configs),
        )
        for resource in request.resources
    ]
    return _altered(context, request, resources, replace=True)


_Resource = tuple[int, str, tuple[tuple[str, int, str | None], ...]]


def _altered(
    context: Context, request: Any, resources: Sequence[_Resource], *, replace: bool
) -> Answer:
    cluster = controller_of(context)
    results: list[Refused | None] = [None] * len(resources)
    commands: list[ResourceChange] = []
    places: list[int] = []  # of the commands among the results
    for place, (resource_type, name, changes) in enumerate(resources):
        try:
            if resource_type == BROKER_LOGGER:
                _check_broker(cluster, name, default_allowed=False)
                _alter_loggers(changes, validate_only=request.validate_only)
                continue
            commands.append(_resource_change(resource_type, name, changes, replace=replace))
            places.append(place)
        except Refused as refusal:
            results[place] = refusal

    def answer(decisions: Sequence[Refused | None]) -> Entity:
        for place, decision in zip(places, decisions, strict=True):
            results[place] = decision
        return respond(context, responses=[
            {"resource_type": kind, "resource_name": name, **error_fields(result)}
            for (kind, name, _), result in zip(resources, results, strict=True)
        ])  # fmt: skip

    decided = cluster.submit(
        lambda caller: AlterConfigs(caller, tuple(commands), validate_only=request.validate_only)
    )
    return when_controller_decided(
        decided, answer, lambda refusal: answer([refusal] * len(commands))
    )


def _resource_change(
    resource_type: int,
    name: str,
    changes: tuple[tuple[str, int, str | None], ...],
    *,
    replace: bool,
) -> ResourceChange:
    scope = _scope(resource_type)
    return ResourceChange(
        scope,
        name,
        tuple(ConfigChange(key, _change_kind(kind), value) for key, kind, value in changes),
        replace=replace,
    )


def _change_kind(kind: int) -> ChangeKind:
    try:
        return ChangeKind(kind)
    except ValueError:
        raise Refused(ErrorCode.invalid_request, f"there is no change of kind {kind}") from None


def _alter_loggers(
    changes: tuple[tuple[str, int, str | None], ...], *, validate_only: bool
) -> None:
    levels: dict[str, int] = {}
    for name, kind, value in changes:
        if name != LOGGER_ROOT and name not in _loggers():
            raise Refused(ErrorCode.invalid_config, f"there is no logger {name}")
        if kind == ChangeKind.DELETE:
            levels[name] = logging.NOTSET
        elif kind != ChangeKind.SET or (value or "").upper() not in _LEVELS:
            raise Refused(
                ErrorCode.invalid_config, f"set a level of: {', '.join(_LEVELS)} (not {value})"
            )
        else:
            levels[name] = _LEVELS[(value or "").upper()]
    if not validate_only:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def list_config_resources(context: Context, request: Any) -> Answer:
    """What has settings: topics and brokers always, groups that set something."""
    cluster = controller_of(context)
    groups = [name for scope, name in cluster.state.configs if scope is ConfigScope.GROUP]
    found = {
        ConfigScope.TOPIC: sorted(topic.name for topic in cluster.topics()),
        ConfigScope.BROKER: [str(endpoint.node_id) for endpoint in cluster.brokers()],
        BROKER_LOGGER: [str(endpoint.node_id) for endpoint in cluster.brokers()],
        CLIENT_METRICS: [],
        ConfigScope.GROUP: sorted(groups),
    }
    # version 0 knows only client metrics, of which there are none
    asked = getattr(request, "resource_types", (CLIENT_METRICS,)) or tuple(found)
    unknown = [kind for kind in asked if kind not in found]
    if unknown:
        return respond(context, error_code=ErrorCode.unsupported_version)
    return respond(
        context,
        error_code=ErrorCode.none,
        config_resources=[
            {"resource_name": name, "resource_type": kind}
            for kind in dict.fromkeys(asked)
            for name in found[kind]
        ],
    )


HANDLERS = (
    Handler(DESCRIBE_CONFIGS, versions=(1, 4), handle=describe_configs),
    Handler(ALTER_CONFIGS, versions=(0, 2), handle=alter_configs),
    Handler(INCREMENTAL_ALTER_CONFIGS, versions=(0, 1), handle=incremental_alter_configs),
    Handler(LIST_CONFIG_RESOURCES, versions=(0, 1), handle=list_config_resources),
)
