"""ApiVersions: what this broker serves, read from the table of handlers."""

from __future__ import annotations

from typing import Any, Final

from kio.static.protocol import Entity

from penstock.broker.handler import Answer, ApiTable, Context, Handler
from penstock.errors import ErrorCode
from penstock.protocol.kio_codec import encode, fill, response_type

API_VERSIONS: Final = 18

# Levels that are finalised from the start. Clients act on two: the new consumer protocol
# (group.version) and transactions that add partitions by producing (transaction.version).
FEATURES: Final = (("group.version", 1), ("metadata.version", 30), ("transaction.version", 2))
_METADATA_LEAST: Final = 7  # metadata.version is the one feature whose least level is not 0


def api_versions(context: Context, request: Any) -> Answer:
    """Answer the table. A client that is too new is answered by the dispatcher, in version 0."""
    table, version = context.broker.api_table, context.api_version
    shown = table.shown.get(version)
    if shown is None:
        shown = table.shown[version] = encode(_show(table, version))
    return shown


def _show(table: ApiTable, version: int) -> Entity:
    entity: Entity = fill(
        response_type(API_VERSIONS, version),
        error_code=ErrorCode.none,
        api_keys=[
            {
                "api_key": row.api_key,
                "min_version": row.advertised[0],
                "max_version": row.advertised[1],
            }
            for row in table.rows
        ],
        supported_features=[
            {"name": name, "min_version": least, "max_version": level}
            for name, least, level in _supported(version)
        ],
        finalized_features_epoch=0,
        finalized_features=[
            {"name": name, "max_version_level": level, "min_version_level": level}
            for name, level in FEATURES
        ],
    )
    return entity


def _supported(api_version: int) -> list[tuple[str, int, int]]:
    """Feature ranges; those from level 0 are shown from version 4 on, older clients reject them."""
    ranges = [
        (name, _METADATA_LEAST if name == "metadata.version" else 0, level)
        for name, level in FEATURES
    ]
    return [row for row in ranges if row[1] > 0 or api_version >= 4]


HANDLERS = (Handler(API_VERSIONS, versions=(0, 4), handle=api_versions),)
