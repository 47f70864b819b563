"""Settings: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from penstock.errors import ErrorCode, Refused
from penstock.protocol.api import Api
from penstock.protocol.bind import Older, bind

# Resource types that no scope of the controller has.
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16

# DescribeConfigs.


class ConfigsToDescribe(NamedTuple):
    resource_type: int
    resource_name: str
    configuration_keys: Sequence[str] | None = None  # None: all


class DescribeConfigsRequest(NamedTuple):
    resources: Sequence[ConfigsToDescribe]
    include_synonyms: bool = False
    include_documentation: bool = False


class ConfigSynonym(NamedTuple):
    """A value that would be effective if those before it were not set."""

    name: str
    value: str | None
    source: int


class DescribedConfig(NamedTuple):
    name: str
    value: str | None
    read_only: bool
    config_source: int = -1  # unknown
    is_sensitive: bool = False
    synonyms: Sequence[ConfigSynonym] = ()
    config_type: int = 0  # unknown
    documentation: str | None = None


class DescribedConfigs(NamedTuple):
    """The settings of one resource."""

    resource_type: int
    resource_name: str
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    configs: Sequence[DescribedConfig] = ()


class DescribeConfigsResponse(NamedTuple):
    results: Sequence[DescribedConfigs]


def _refuse_describe(request: DescribeConfigsRequest, refusal: Refused) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        [
            DescribedConfigs(
                resource.resource_type, resource.resource_name, refusal.code, refusal.message
            )
            for resource in request.resources
        ]
    )


DESCRIBE_CONFIGS: Final = bind(
    Api.DESCRIBE_CONFIGS, DescribeConfigsRequest, DescribeConfigsResponse, refuse=_refuse_describe
)

# AlterConfigs and IncrementalAlterConfigs.


class AlterableConfig(NamedTuple):
    name: str
    value: str | None


class ConfigsToReplace(NamedTuple):
    """What a resource is to set: anything else goes back to its default."""

    resource_type: int
    resource_name: str
    configs: Sequence[AlterableConfig]


class AlterConfigsRequest(NamedTuple):
    resources: Sequence[ConfigsToReplace]
    validate_only: bool = False


class ConfigOperation(NamedTuple):
    name: str
    config_operation: int  # 0 set, 1 delete, 2 append, 3 subtract
    value: str | None


class ConfigsToChange(NamedTuple):
    resource_type: int
    resource_name: str
    configs: Sequence[ConfigOperation]


class IncrementalAlterConfigsRequest(NamedTuple):
    resources: Sequence[ConfigsToChange]
    validate_only: bool = False


class AlteredConfigs(NamedTuple):
    """The result for one resource."""

    resource_type: int
    resource_name: str
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


class AlterConfigsResponse(NamedTuple):
    """Of both APIs."""

    responses: Sequence[AlteredConfigs]


def _refuse_alter(
    resources: Iterable[ConfigsToReplace | ConfigsToChange], refusal: Refused
) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        [
            AlteredConfigs(
                resource.resource_type, resource.resource_name, refusal.code, refusal.message
            )
            for resource in resources
        ]
    )


ALTER_CONFIGS: Final = bind(
    Api.ALTER_CONFIGS,
    AlterConfigsRequest,
    AlterConfigsResponse,
    refuse=lambda request, refusal: _refuse_alter(request.resources, refusal),
)
INCREMENTAL_ALTER_CONFIGS: Final = bind(
    Api.INCREMENTAL_ALTER_CONFIGS,
    IncrementalAlterConfigsRequest,
    AlterConfigsResponse,
    refuse=lambda request, refusal: _refuse_alter(request.resources, refusal),
)

# ListConfigResources.


class ListConfigResourcesRequest(NamedTuple):
    resource_types: Sequence[int] = ()  # none: all


class _ListClientMetrics(NamedTuple):
    pass


class ListedConfigResource(NamedTuple):
    resource_name: str
    resource_type: int = CLIENT_METRICS


class ListConfigResourcesResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    config_resources: Sequence[ListedConfigResource] = ()


LIST_CONFIG_RESOURCES: Final = bind(
    Api.LIST_CONFIG_RESOURCES,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    older_request=Older(
        0,
        _ListClientMetrics,
        lambda _old: ListConfigResourcesRequest((CLIENT_METRICS,)),
        lambda _new: _ListClientMetrics(),
    ),
)
