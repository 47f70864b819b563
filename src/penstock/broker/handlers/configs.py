"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources.

Settings of topics, brokers and groups are the controller's; log levels are this process's own.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.described_configs import described_configs
from penstock.broker.handler import Answer, Context, Forwards, Handler
from penstock.broker.permissions import (
    AllOf,
    Operation,
    Permission,
    on_cluster,
    on_each_group,
    on_each_topic,
)
from penstock.broker.replies import controller_refusal, error_of, when_replied
from penstock.config.broker_keys import BROKER_KEYS, GROUP_KEYS
from penstock.config.key_rows import Key, ValueType
from penstock.config.resolve import ChangeKind, ConfigChange, ConfigSource, Layers
from penstock.config.topic_keys import TOPIC_KEYS
from penstock.coordination.controller.commands import AlterConfigs, ResourceChange
from penstock.coordination.controller.decide_topics import check_topic_name
from penstock.coordination.controller.events import ConfigScope
from penstock.errors import ErrorCode, Refused
from penstock.model import NodeId
from penstock.protocol.messages.configs import (
    ALTER_CONFIGS,
    BROKER_LOGGER,
    CLIENT_METRICS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlteredConfigs,
    ConfigsToDescribe,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribedConfig,
    DescribedConfigs,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListedConfigResource,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.broker.metadata_image import MetadataImage


LOGGER_ROOT: Final = "penstock"
_LEVELS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG,
}


def describe_configs(context: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """The settings of each resource, or why it has none."""
    cluster = context.broker.cluster
    results = []
    for resource in request.resources:
        kind, name, _ = resource
        try:
            rows = _described(cluster, resource, request)
            results.append(DescribedConfigs(kind, name, configs=rows))
        except Refused as refusal:
            results.append(DescribedConfigs(kind, name, *error_of(refusal)))
    return DescribeConfigsResponse(results)


def _described(
    cluster: MetadataImage, resource: ConfigsToDescribe, request: DescribeConfigsRequest
) -> list[DescribedConfig]:
    requested = resource.configuration_keys or None  # as in Kafka: no names are all names
    name = resource.resource_name
    if resource.resource_type == BROKER_LOGGER:
        _check_broker(cluster, name, default_allowed=False)
        return _described_loggers(requested)
    scope = _scope(resource.resource_type)
    keys, own, source = _keys_and_overrides(cluster, scope, name)
    layers = cluster.layers
    if scope is ConfigScope.BROKER and not name:  # only what was set for all brokers
        keys = {key: keys[key] for key in layers.defaults if key in keys}
        layers = Layers({}, layers.defaults, {})
    return described_configs(
        keys,
        own,
        source,
        layers,
        requested=requested,
        with_synonyms=request.include_synonyms,
        with_documentation=request.include_documentation,
    )


def _keys_and_overrides(
    cluster: MetadataImage, scope: ConfigScope, name: str
) -> tuple[Mapping[str, Key], Mapping[str, str], ConfigSource]:
    match scope:
        case ConfigScope.TOPIC:
            check_topic_name(name)
            if cluster.topic(name) is None:
                raise Refused(ErrorCode.unknown_topic_or_partition, f"there is no topic '{name}'")
            return TOPIC_KEYS, cluster.state.overrides(scope, name), ConfigSource.TOPIC
        case ConfigScope.GROUP:
            if not name:
                raise Refused(ErrorCode.invalid_request, "the name of the group is empty")
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


def _check_broker(cluster: MetadataImage, name: str, *, default_allowed: bool) -> None:
    if not name and default_allowed:
        return
    if not name.isdecimal():
        raise Refused(ErrorCode.invalid_request, f"'{name}' is not the number of a broker")
    if NodeId(int(name)) != cluster.node_id:
        raise Refused(
            ErrorCode.invalid_request,
            f"this is broker {cluster.node_id}; send the request to broker {name}",
        )


def _described_loggers(requested: Sequence[str] | None) -> list[DescribedConfig]:
    return [
        DescribedConfig(
            name,
            _level_name(logging.getLogger(name).getEffectiveLevel()),
            read_only=False,
            config_source=ConfigSource.BROKER_LOGGER,
            config_type=ValueType.STRING,
        )
        for name in (LOGGER_ROOT, *sorted(_loggers()))
        if requested is None or name in requested
    ]


def _loggers() -> list[str]:
    names = logging.Logger.manager.loggerDict
    return [name for name in names if name.startswith(LOGGER_ROOT + ".")]


def _level_name(level: int) -> str:
    return next((name for name, value in _LEVELS.items() if level >= value), "DEBUG")


_Changes = tuple[tuple[str, int, str | None], ...]  # key, operation, value
_Resource = tuple[int, str, _Changes]


def incremental_alter_configs(
    context: Context, request: IncrementalAlterConfigsRequest
) -> Answer[AlterConfigsResponse]:
    """Set or delete single keys, append to lists or subtract from them."""
    resources: list[_Resource] = [
        (resource.resource_type, resource.resource_name, tuple(resource.configs))
        for resource in request.resources
    ]
    return _alter(context, request, resources, replace=False)


def alter_configs(context: Context, request: AlterConfigsRequest) -> Answer[AlterConfigsResponse]:
    """Replace all settings of a resource: keys that are not given get their default."""
    resources = [
        (
            resource.resource_type,
            resource.resource_name,
            tuple((config.name, ChangeKind.SET, config.value) for config in resource.configs),
        )
        for resource in request.resources
    ]
    return _alter(context, request, resources, replace=True)


def _alter(
    context: Context,
    request: AlterConfigsRequest | IncrementalAlterConfigsRequest,
    resources: Sequence[_Resource],
    *,
    replace: bool,
) -> Answer[AlterConfigsResponse]:
    cluster, validate_only = context.broker.cluster, request.validate_only
    results: list[Refused | None] = [None] * len(resources)
    changes: list[ResourceChange] = []
    indexes: list[int] = []  # of the changes among the results
    for index, (resource_type, name, operations) in enumerate(resources):
        try:
            if resource_type == BROKER_LOGGER:
                _check_broker(cluster, name, default_allowed=False)
                _alter_loggers(operations, validate_only=validate_only)
            else:
                changes.append(_change(resource_type, name, operations, replace=replace))
                indexes.append(index)
        except Refused as refusal:
            results[index] = refusal

    def respond(decided: Any) -> AlterConfigsResponse:
        """Log levels have changed, whatever the controller replies."""
        if isinstance(decided, AlterConfigsResponse):  # of another broker
            decided = [_result(row) for row in decided.responses]
        elif isinstance(decided, Refused):
            decided = [controller_refusal(decided)] * len(changes)
        for index, result in zip(indexes, decided, strict=True):
            results[index] = result
        return AlterConfigsResponse(
            [
                AlteredConfigs(resource_type, name, *error_of(result))
                for (resource_type, name, _), result in zip(resources, results, strict=True)
            ]
        )

    if not changes:
        return respond(())
    if not context.broker.controller.is_active:
        chosen: list[Any] = [request.resources[index] for index in indexes]
        rest: Any = request._replace(resources=chosen)
        return when_replied(context.broker.controller_client.forward(context, rest), respond)
    decided = context.broker.controller.submit(
        lambda caller: AlterConfigs(caller, tuple(changes), validate_only=validate_only)
    )
    return when_replied(decided, respond)


def _result(row: AlteredConfigs) -> Refused | None:
    if row.error_code == ErrorCode.none:
        return None
    return Refused(row.error_code, row.error_message or "")


def _change(
    resource_type: int, name: str, operations: _Changes, *, replace: bool
) -> ResourceChange:
    return ResourceChange(
        _scope(resource_type),
        name,
        tuple(ConfigChange(key, _change_kind(kind), value) for key, kind, value in operations),
        replace=replace,
    )


def _change_kind(kind: int) -> ChangeKind:
    try:
        return ChangeKind(kind)
    except ValueError:
        raise Refused(ErrorCode.invalid_request, f"there is no operation {kind}") from None


def _alter_loggers(operations: _Changes, *, validate_only: bool) -> None:
    levels: dict[str, int] = {}
    for name, kind, value in operations:
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


def list_config_resources(
    context: Context, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """All resources with settings: topics and brokers always, groups that have overrides."""
    cluster = context.broker.cluster
    groups = [name for scope, name in cluster.state.configs if scope is ConfigScope.GROUP]
    names: dict[int, list[str]] = {
        ConfigScope.TOPIC: sorted(topic.name for topic in cluster.topics()),
        ConfigScope.BROKER: [str(endpoint.node_id) for endpoint in cluster.brokers()],
        BROKER_LOGGER: [str(endpoint.node_id) for endpoint in cluster.brokers()],
        CLIENT_METRICS: [],
        ConfigScope.GROUP: sorted(groups),
    }
    resource_types = dict.fromkeys(request.resource_types or names)
    for resource_type in resource_types:
        if resource_type not in names:
            raise Refused(
                ErrorCode.unsupported_version, f"there are no resources of type {resource_type}"
            )
    return ListConfigResourcesResponse(
        config_resources=[
            ListedConfigResource(name, resource_type)
            for resource_type in resource_types
            for name in names[resource_type]
        ]
    )


def _on_each_resource(operation: Operation) -> AllOf[Any]:
    """Each kind of resource that the request names: brokers count as the cluster."""
    on_brokers: Permission[Any] = on_cluster(operation)
    return AllOf(on_brokers, on_each_topic(operation), on_each_group(operation))


HANDLERS = (
    Handler(
        DESCRIBE_CONFIGS,
        versions=(1, 4),
        handle=describe_configs,
        allow=_on_each_resource(Operation.DESCRIBE_CONFIGS),
    ),
    Handler(
        ALTER_CONFIGS,
        forwards=Forwards.PARTLY,
        versions=(0, 2),
        handle=alter_configs,
        allow=_on_each_resource(Operation.ALTER_CONFIGS),
    ),
    Handler(
        INCREMENTAL_ALTER_CONFIGS,
        forwards=Forwards.PARTLY,
        versions=(0, 1),
        handle=incremental_alter_configs,
        allow=_on_each_resource(Operation.ALTER_CONFIGS),
    ),
    Handler(
        LIST_CONFIG_RESOURCES,
        versions=(0, 1),
        handle=list_config_resources,
        allow=on_cluster(Operation.DESCRIBE_CONFIGS),
    ),
)
