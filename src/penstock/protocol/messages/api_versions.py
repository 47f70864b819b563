"""ApiVersions: which APIs and features a broker supports."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.errors import ErrorCode
from penstock.protocol.api import Api
from penstock.protocol.bind import bind


class ApiVersionsRequest(NamedTuple):
    client_software_name: str = ""
    client_software_version: str = ""


class ApiVersionRange(NamedTuple):
    """The versions of one API, both inclusive."""

    api_key: int
    min_version: int
    max_version: int


class SupportedFeature(NamedTuple):
    """The levels of a feature that a broker can have."""

    name: str
    min_version: int
    max_version: int


class FinalizedFeature(NamedTuple):
    """The level of a feature that the cluster has."""

    name: str
    max_version_level: int
    min_version_level: int


class ApiVersionsResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    api_keys: Sequence[ApiVersionRange] = ()
    supported_features: Sequence[SupportedFeature] = ()
    finalized_features_epoch: int = -1  # unknown
    finalized_features: Sequence[FinalizedFeature] = ()
    zk_migration_ready: bool = False


API_VERSIONS: Final = bind(Api.API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse)
