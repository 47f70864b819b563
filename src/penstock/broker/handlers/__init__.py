"""The table of what the broker serves: each module of this room ends in its rows, joined here."""

from typing import Final

from penstock.broker.handler import ApiTable
from penstock.broker.handlers import (
    api_versions,
    epochs,
    fetch,
    list_offsets,
    produce,
    producers,
    records,
)

API_TABLE: Final = ApiTable(
    (
        *api_versions.HANDLERS,
        *epochs.HANDLERS,
        *fetch.HANDLERS,
        *list_offsets.HANDLERS,
        *produce.HANDLERS,
        *producers.HANDLERS,
        *records.HANDLERS,
    )
)
