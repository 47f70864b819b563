"""Markup in everything that a client can name or write stays text, on every page that shows it."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote

import httpx
import pytest
from confluent_kafka import Consumer

from penstock.client.pipeline_reports import PipelineReport
from penstock.client.reader_lease import declare_reader, leased, today_utc
from penstock.schemas.readers import Reader
from penstock.serde.errors import Reason
from tests.console.conftest import quarantine
from tests.console.pages.conftest import BOTH_SERVERS, CANARY, OpenPage, report_pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.testing.platform import Platform

pytestmark = pytest.mark.slow
SERVERS = BOTH_SERVERS
SUBJECT = f"{CANARY}-value"
QUERY = f"""select '{CANARY}' as "{CANARY}" """
SCHEMA = {
    "type": "object",
    "title": CANARY,
    "description": CANARY,
    "properties": {CANARY: {"type": "string", "description": CANARY, "default": CANARY}},
}
NAMED = quote(CANARY, safe="")
PAGES = [
    "/groups",
    f"/groups/{NAMED}",
    f"/groups/{NAMED}/reset",
    "/topics/marked/groups",
    "/topics/marked/produce",
    "/topics/marked/produce?from=0%3A0",
    "/topics/marked/records",
    "/topics/marked/records?open=0%3A0",
    "/topics/marked/records?open=0%3A0&tab=key",
    "/topics/marked/records?open=0%3A0&tab=headers",
    "/topics/marked/records?open=0%3A0&tab=copy",
    f"/topics/marked/records?filter={quote(f'key == {json.dumps(CANARY)}')}",
    f"/schemas?q={quote('<img')}",
    f"/schemas/{quote(SUBJECT, safe='')}",
    f"/schemas/{quote(SUBJECT, safe='')}/propose",
    "/schemas/marked-value",
    "/schemas/marked-value?from=1&to=2",
    "/groups/marked-members",
    "/quarantine/marked",
    "/pipelines",
    f"/sql?q={quote(QUERY)}",
]


# Values of controls are text of the page, too.
SHOWS_MARKUP = """() => {
  const main = document.querySelector("main");
  const controls = [...main.querySelectorAll("input, textarea")].map((each) => each.value);
  return [main.textContent, ...controls].some((text) => text.includes("<img src=x"));
}"""


@pytest.fixture(scope="module")
def marked(console: Platform) -> Iterator[None]:
    """A topic, groups, subjects, a reader, a quarantine and a pipeline, all with markup in them."""
    with httpx.Client(base_url=console.registry_url, timeout=30) as http:
        http.post("/topics", json={"name": "marked", "partitions": 1}).raise_for_status()
        record = {"key": CANARY, "value": {CANARY: CANARY}, "headers": [[CANARY, CANARY]]}
        http.post("/topics/marked/produce", json=record).raise_for_status()
        offsets = {"offsets": [{"topic": "marked", "partition": 0, "offset": 0}]}
        http.put(f"/consumer-groups/{NAMED}/offsets", json=offsets).raise_for_status()
        schema = {"schema": json.dumps(SCHEMA), "schemaType": "JSON"}
        for subject in (SUBJECT, "marked-value"):
            path = f"/subjects/{quote(subject, safe='')}/versions"
            http.post(path, json=schema, headers={"User-Agent": CANARY}).raise_for_status()
        http.put("/config/marked-value", json={"compatibility": "NONE"}).raise_for_status()
        changed = {"schema": json.dumps({**SCHEMA, "required": [CANARY]}), "schemaType": "JSON"}
        http.post("/subjects/marked-value/versions", json=changed).raise_for_status()
    report = PipelineReport(CANARY, CANARY, 5, CANARY, watermark=CANARY, last_error=CANARY)
    report_pipeline(console.registry_url, report)
    events = [(Reason.UNDECODABLE, CANARY.encode())]
    quarantine(console.bootstrap, "marked", events, detail=CANARY, group=CANARY)
    reader = leased(Reader(CANARY, owner=CANARY), today_utc())
    declare_reader(console.registry.api, "marked-value", reader, today_utc())
    with joined(console.bootstrap):
        yield


@contextmanager
def joined(bootstrap: str) -> Iterator[None]:
    """A member of a group whose client has markup as its name."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "marked-members", "client.id": CANARY}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "log_level": 0})
    consumer.subscribe(["marked"])
    assert consumer.poll(60) is not None
    yield
    consumer.close()


@pytest.mark.usefixtures("marked")
@pytest.mark.parametrize("path", PAGES)
def test_markup_is_shown_as_text(open_page: OpenPage, path: str) -> None:
    page = open_page(path)
    page.wait_for_function(SHOWS_MARKUP)
    page.locator(".state.loading").first.wait_for(state="detached")
    for event in page.locator(".event").all():
        event.click()
    assert page.evaluate("() => window.PWNED") is None
    assert page.locator("main img").count() == 0


@pytest.mark.usefixtures("marked")
def test_names_and_contacts_of_readers_are_text(open_page: OpenPage) -> None:
    page = open_page("/schemas/marked-value")
    row = page.get_by_role("table", name="Readers").locator("tr", has_text=CANARY)
    row.get_by_text(CANARY).nth(1).wait_for()
    assert page.locator("main img").count() == 0


@pytest.mark.usefixtures("marked")
def test_markup_is_text_in_live_records(open_page: OpenPage, console: Platform) -> None:
    page = open_page("/topics/marked/live")
    page.locator(".connection.live").wait_for()
    record = {"key": CANARY, "value": {CANARY: CANARY}, "headers": [[CANARY, CANARY]]}
    url = f"{console.registry_url}/topics/marked/produce"
    httpx.post(url, json=record, timeout=30).raise_for_status()
    page.locator(".vrow", has_text=CANARY).first.wait_for()
    assert page.evaluate("() => window.PWNED") is None
    assert page.locator("main img").count() == 0


@pytest.mark.usefixtures("marked")
def test_markup_in_names_is_text_in_the_search(open_page: OpenPage) -> None:
    page = open_page("/topics")
    page.keyboard.press("Control+k")
    page.keyboard.type("<img src")
    page.get_by_role("option", name=CANARY).first.wait_for()
    assert page.locator("dialog img").count() == 0
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=CANARY).wait_for()
    assert page.evaluate("() => window.PWNED") is None
