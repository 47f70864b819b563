"""`penstock top`: brokers, topics and groups with their rates, from the metrics of every process.

Needs an HTTP process of the platform, which lists where the metrics are.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, NamedTuple

import httpx
import typer
from prometheus_client.parser import text_string_to_metric_families

from penstock.cli.error_output import UNREACHABLE, fail
from penstock.cli.options import LOCAL_REGISTRY, AsJson, RegistryUrl
from penstock.cli.output import show_json

TIMEOUT_S: Final = 5.0
ROWS_MAX: Final = 15  # of topics and of groups, the busiest first
BROKER: Final = "broker"  # a kind of process
_KILO: Final = 1000.0


class SampleKey(NamedTuple):
    """Where a sample is from, and what it is about."""

    process: str  # broker or http
    address: str
    name: str
    labels: tuple[tuple[str, str], ...]


Samples = dict[SampleKey, float]


def top(
    registry: RegistryUrl = LOCAL_REGISTRY,
    interval_s: Annotated[
        float, typer.Option("--interval", "-i", min=0.2, help="Seconds between two looks.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Show once and exit.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show brokers, topics and groups with their rates until Ctrl-C."""
    from rich.live import Live

    views = _views(registry.rstrip("/"), interval_s)
    if once or as_json:
        for view in views:
            _print(view, as_json)
            if once:
                return
    with Live(auto_refresh=False, screen=True) as live:
        for view in views:
            live.update(_table(view), refresh=True)


def _views(url: str, interval_s: float) -> Iterator[dict[str, Any]]:
    before, seen_s = _scrape(url), time.monotonic()
    while True:
        time.sleep(interval_s)
        after, now_s = _scrape(url), time.monotonic()
        yield summarize(before, after, now_s - seen_s)
        before, seen_s = after, now_s


def _scrape(url: str) -> Samples:
    """The metrics of all processes that respond."""
    try:
        targets = httpx.get(f"{url}/metrics/targets", timeout=TIMEOUT_S).raise_for_status().json()
    except (httpx.HTTPError, ValueError) as error:
        fail(
            f"cannot read {url}/metrics/targets: {error}. Name the HTTP process of the platform "
            "with --registry URL.",
            UNREACHABLE,
        )
    samples: Samples = {}
    for process, address in (
        (row["labels"]["process"], address) for row in targets for address in row["targets"]
    ):
        try:
            text = httpx.get(f"http://{address}/metrics", timeout=TIMEOUT_S).text
        except httpx.HTTPError:
            continue  # it is not in the view
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = tuple(sorted(sample.labels.items()))
                samples[SampleKey(process, address, sample.name, labels)] = sample.value
    return samples


def summarize(before: Mapping[SampleKey, float], after: Samples, seconds: float) -> dict[str, Any]:
    """Rows of brokers, topics and groups; counters as rates per second."""
    brokers: dict[str, dict[str, Any]] = {}
    topics: dict[str, dict[str, float]] = {}
    groups: dict[str, dict[str, float]] = {}
    for key, value in after.items():
        address, labels = key.address, dict(key.labels)
        rate = max(value - before.get(key, value), 0.0) / seconds
        short = key.name.removeprefix("penstock_")
        if short in _BROKER:
            if key.process == BROKER:
                brokers.setdefault(address, {})[_BROKER[short]] = value
        elif short == "broker_requests_total":
            row = brokers.setdefault(address, {})
            row["requests_per_s"] = row.get("requests_per_s", 0.0) + rate
        elif short in _TOPIC and "topic" in labels:
            row = topics.setdefault(labels["topic"], {})
            shown = value if short == "log_size_bytes" else rate
            row[_TOPIC[short]] = row.get(_TOPIC[short], 0.0) + shown
        elif short in _GROUP and "group" in labels:
            row = groups.setdefault(labels["group"], {})
            row[_GROUP[short]] = max(row.get(_GROUP[short], 0.0), value)
    return {
        "brokers": [{"broker": key, **row} for key, row in sorted(brokers.items())],
        "topics": _busiest("topic", topics, "received_bytes_per_s"),
        "groups": _busiest("group", groups, "lag_seconds"),
    }


_BROKER: Final = {
    "health_ready": "ready",
    "loop_busy_ratio": "busy_ratio",
    "broker_connections": "connections",
    "process_resident_bytes": "memory_bytes",
    "disk_free_bytes": "disk_free_bytes",
}
_TOPIC: Final = {
    "broker_records_total": "records_per_s",
    "broker_received_bytes_total": "received_bytes_per_s",
    "broker_sent_bytes_total": "sent_bytes_per_s",
    "log_size_bytes": "size_bytes",
}
_GROUP: Final = {
    "group_members": "members",
    "group_lag_records": "lag_records",
    "group_lag_seconds": "lag_seconds",
}


def _busiest(title: str, rows: dict[str, dict[str, float]], by: str) -> list[dict[str, Any]]:
    ordered = sorted(rows.items(), key=lambda item: (-item[1].get(by, 0.0), item[0]))
    return [{title: name, **row} for name, row in ordered[:ROWS_MAX]]


def _print(view: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show_json(view)
        return
    from rich.console import Console

    Console().print(_table(view))


def _table(view: dict[str, Any]) -> Any:
    from rich.console import Group
    from rich.table import Table

    tables: list[Table | str] = []
    for rows in view.values():
        names = list(dict.fromkeys(name for row in rows for name in row))
        table = Table(box=None, header_style="bold")
        for name in names:
            is_first = name == names[0]
            table.add_column(name.replace("_", " "), justify="left" if is_first else "right")
        for row in rows:
            table.add_row(*(_shown(row.get(name, "")) for name in names))
        tables += [table, ""]
    return Group(*tables)


def _shown(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    for unit in ("", " k", " M", " G"):
        if value < _KILO:
            return f"{value:.4g}{unit}"
        value /= _KILO
    return f"{value:.4g} T"
