"""The table of what the broker serves: each module here ends in its rows, joined below."""

from typing import Final

from penstock.broker.handler import ApiTable
from penstock.broker.handlers import (
    api_versions,
    broker_lifecycle,
    classic_groups,
    cluster,
    configs,
    consumer_groups,
    fetch,
    find_coordinator,
    group_admin,
    list_offsets,
    metadata,
    offsets,
    produce,
    quorum,
    quota_admin,
    security,
    topics,
    transaction_admin,
    transactions,
)

API_TABLE: Final = ApiTable(
    (
        *api_versions.HANDLERS,
        *broker_lifecycle.HANDLERS,
        *classic_groups.HANDLERS,
        *cluster.HANDLERS,
        *configs.HANDLERS,
        *consumer_groups.HANDLERS,
        *fetch.HANDLERS,
        *find_coordinator.HANDLERS,
        *group_admin.HANDLERS,
        *list_offsets.HANDLERS,
        *metadata.HANDLERS,
        *offsets.HANDLERS,
        *produce.HANDLERS,
        *quorum.HANDLERS,
        *quota_admin.HANDLERS,
        *security.HANDLERS,
        *topics.HANDLERS,
        *transaction_admin.HANDLERS,
        *transactions.HANDLERS,
    )
)
