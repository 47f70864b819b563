"""`docs/metrics.md`, written from the tables of rows."""

from typing import Final

from penstock.metrics.broker_rows import BROKER_ROWS
from penstock.metrics.client_rows import CLIENT_ROWS
from penstock.metrics.http_rows import HTTP_ROWS
from penstock.metrics.process_rows import PROCESS_ROWS
from penstock.metrics.row import MetricRow, Source

ALL_ROWS: Final = PROCESS_ROWS + BROKER_ROWS + HTTP_ROWS + CLIENT_ROWS

_INTRODUCTION: Final = """# Metrics

Every metric of Penstock, generated from the tables in `src/penstock/metrics` by
`pytest tests/metrics --rewrite`. [Operations](operations/index.md) says how to scrape them, and
which ones to watch. Known label values start at 0. No label has a value that a client chooses
freely except names of topics and groups, and those are capped: what is beyond the cap is counted in
`penstock_broker_topics_not_shown`, `penstock_compaction_topics_not_shown`,
`penstock_groups_not_shown` and `penstock_group_lag_not_shown`.
"""
_SOURCES: Final = {
    Source.EVERY: "Each broker and each HTTP process serves these.",
    Source.BROKER: "Each broker serves these on its metrics port, for its upkeep worker too.",
    Source.HTTP: "The HTTP process serves these at `/metrics`.",
    Source.CLIENT: "A program publishes these: "
    "`prometheus_client.REGISTRY.register(ClientMetrics(registry, consumers=[consumer]))`.",
}


def metrics_page() -> str:
    """The page in full."""
    parts = [_INTRODUCTION]
    for source, text in _SOURCES.items():
        title = source.value[0].upper() + source.value[1:]
        rows = [_line(row) for row in ALL_ROWS if row.source is source]
        table = "\n".join(("| metric | type | labels | meaning |", "|---|---|---|---|", *rows))
        parts.append(f"## {title}\n\n{text}\n\n{table}\n")
    return "\n".join(parts)


def _line(row: MetricRow) -> str:
    labels = ", ".join(f"`{label}`" for label in row.labels)
    return f"| `{row.name}` | {row.kind} | {labels} | {row.help} |"
