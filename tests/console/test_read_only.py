"""A server that is read-only refuses every route that changes something, and no other."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from penstock.http.read_only import CHANGING_READS, DRY_RUNS, READS, changes
from penstock.node.http_process import HttpOptions
from penstock.node.supervisor import HttpProcess
from penstock.testing.platform import Platform

WRITES = ("post", "put", "patch", "delete")


@pytest.fixture(scope="module")
def read_only(penstock: Platform) -> Iterator[httpx.Client]:
    process = HttpProcess()
    prefix = penstock.name("read-only")
    options = HttpOptions(
        penstock.bootstrap, http_port=0, log_level="WARNING", group=prefix, topic=f"_{prefix}",
        read_only=True,
    )  # fmt: skip
    process.configure(options)
    try:
        url = str(process.wait_ready()["http"])
        with httpx.Client(base_url=url, timeout=30) as client:
            yield client
    finally:
        process.stop()


def routes_of(http: httpx.Client) -> list[tuple[str, str]]:
    paths: dict[str, Any] = http.get("/openapi.json").json()["paths"]
    return [
        (method.upper(), path)
        for path, operations in paths.items()
        for method in operations
        if method in WRITES
    ]


def test_every_changing_route_is_refused_and_every_reading_one_is_not(
    read_only: httpx.Client,
) -> None:
    routes = routes_of(read_only)
    assert len(routes) > 25
    for method, path in routes:
        url = path.replace("{", "").replace("}", "")
        answer = read_only.request(method, url, json={})
        is_refused = answer.status_code == 403 and "read-only" in answer.text
        assert is_refused == ((method, path) not in READS), (method, path, answer.text)


def test_dry_runs_are_reads(read_only: httpx.Client) -> None:
    known = set(routes_of(read_only))
    for method, path in DRY_RUNS:
        assert (method, path) in known
        url = path.replace("{", "").replace("}", "")
        assert read_only.request(method, f"{url}?dry_run=true", json={}).status_code != 403
        assert read_only.request(method, f"{url}?dry_run=false", json={}).status_code == 403
        both = f"{url}?dry_run=true&dry_run=false"
        assert read_only.request(method, both, json={}).status_code == 403


def test_streams_of_groups_are_refused_because_they_commit(read_only: httpx.Client) -> None:
    assert read_only.get("/consumer-groups/g/stream").status_code == 403
    assert read_only.get("/console/api/info").json()["read_only"] is True
    assert read_only.get("/subjects").status_code == 200


def test_every_row_of_the_tables_is_a_route(read_only: httpx.Client) -> None:
    paths = read_only.get("/openapi.json").json()["paths"]
    for method, path in (*READS, *DRY_RUNS, *CHANGING_READS):
        assert method.lower() in paths[path], (method, path)


@pytest.mark.parametrize(
    ("method", "path", "query", "is_change"),
    [
        ("GET", "/topics", "", False),
        ("HEAD", "/", "", False),
        ("POST", "/topics/a%2Fb/search", "", False),
        ("POST", "/topics/a/b/search", "", True),
        ("POST", "/topics/t/search/", "", False),
        ("POST", "/topics/t/produce", "dry_run=true", False),
        ("POST", "/topics/t/produce", "dry_run=True", True),
        ("POST", "/topics/t/produce", "dry_run", True),
        ("DELETE", "/topics/t", "dry_run=true", True),
        ("PROPFIND", "/topics", "", True),
        ("GET", "/consumer-groups/g/stream", "", True),
    ],
)
def test_what_is_not_listed_is_a_change(
    method: str, path: str, query: str, is_change: bool
) -> None:
    assert changes(method, path, query) is is_change
