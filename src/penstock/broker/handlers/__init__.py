"""The table of what the broker serves: each module of this room ends in its rows, joined here."""

from typing import Final

from penstock.broker.handler import ApiTable
from penstock.broker.handlers import (
    api_versions,
    cluster,
    configs,
    consumer_group,
    epochs,
    fetch,
    find_coordinator,
    groups,
    list_offsets,
    metadata,
    offsets,
    produce,
    producers,
    quotas_admin,
    records,
    security,
    topics,
    transaction_state,
    transactions,
)

API_TABLE: Final = ApiTable(
    (
        *api_versions.HANDLERS,
        *cluster.HANDLERS,
        *configs.HANDLERS,
        *consumer_group.HANDLERS,
        *epochs.HANDLERS,
        *fetch.HANDLERS,
        *find_coordinator.HANDLERS,
        *groups.HANDLERS,
        *list_offsets.HANDLERS,
        *metadata.HANDLERS,
        *offsets.HANDLERS,
        *produce.HANDLERS,
        *producers.HANDLERS,
        *quotas_admin.HANDLERS,
        *records.HANDLERS,
        *security.HANDLERS,
        *topics.HANDLERS,
        *transaction_state.HANDLERS,
        *transactions.HANDLERS,
    )
)
