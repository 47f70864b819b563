"""ApiVersions: what this broker serves, from the table of handlers."""

from __future__ import annotations

from typing import Final

from penstock.broker.handler import Context, Handler, always
from penstock.broker.permissions import ANYONE
from penstock.protocol.messages.api_versions import (
    API_VERSIONS,
    ApiVersionRange,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeature,
    SupportedFeature,
)

# Levels that are finalized from the start. Clients act on two: the new consumer protocol
# (group.version) and transactions that add partitions by producing (transaction.version).
FEATURES: Final = (("group.version", 1), ("metadata.version", 30), ("transaction.version", 2))
_METADATA_MIN: Final = 7  # metadata.version is the only feature whose lowest level is not 0
_LEVEL_ZERO_FROM: Final = 4  # older clients reject features whose lowest level is 0


def api_versions(context: Context, _request: ApiVersionsRequest) -> ApiVersionsResponse:
    """The table. A request that is too new is refused by the dispatcher, in version 0."""
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionRange(row.api, *row.advertised) for row in context.broker.api_table.rows
        ],
        supported_features=_supported(context.api_version),
        finalized_features_epoch=0,
        finalized_features=[FinalizedFeature(name, level, level) for name, level in FEATURES],
    )


def _supported(api_version: int) -> list[SupportedFeature]:
    features = [
        SupportedFeature(name, _METADATA_MIN if name == "metadata.version" else 0, level)
        for name, level in FEATURES
    ]
    return [row for row in features if row.min_version > 0 or api_version >= _LEVEL_ZERO_FROM]


HANDLERS = (
    Handler(API_VERSIONS, versions=(0, 4), handle=api_versions, allow=ANYONE, before_ready=always),
)
