"""Subjects, differences in plain words, and the verdict on a proposal."""

import json
from typing import Any

import httpx
import pytest

from penstock.client.registry import Registry
from penstock.schemas.model import SchemaText, SchemaType
from penstock.testing.platform import Platform


def order(*fields: dict[str, Any]) -> str:
    known = {"name": "cents", "type": "long"}
    return json.dumps({"type": "record", "name": "Order", "fields": [known, *fields]})


CITY = {"name": "city", "type": "string", "default": ""}
REQUIRED = {"name": "country", "type": "string"}


@pytest.fixture
def subject(penstock: Platform, registry: Registry) -> str:
    """A subject with two versions."""
    name = f"{penstock.name('orders')}-value"
    for text in (order(), order(CITY)):
        registry.register(name, SchemaText(SchemaType.AVRO, text))
    return name


def test_subjects_are_listed_and_shown(http: httpx.Client, subject: str) -> None:
    table = http.get("/console/api/schemas").json()
    rows = {row[0]: dict(zip(table["columns"], row, strict=True)) for row in table["rows"]}
    assert (rows[subject]["type"], rows[subject]["versions"]) == ("AVRO", 2)
    assert rows[subject]["compatibility"] == "BACKWARD"
    page = http.get(f"/console/api/schemas/{subject}").json()
    assert [version["version"] for version in page["versions"]] == [1, 2]
    assert json.loads(page["versions"][1]["schema"]) == json.loads(order(CITY))
    assert any(use["role"] == "producer" for use in page["versions"][0]["usage"])
    assert http.get("/console/api/schemas/none").status_code == 404


def test_a_difference_says_who_breaks(http: httpx.Client, subject: str) -> None:
    forth = http.get(f"/console/api/schemas/{subject}/diff", params={"from": 1, "to": 2}).json()
    assert forth["changes"] == []
    assert "any" in forth["upgrade_order"]
    missing = http.get(f"/console/api/schemas/{subject}/diff", params={"from": 1, "to": 9})
    assert missing.json()["error"]["code"] == "unknown_version"


def test_a_breaking_proposal_comes_with_an_event_that_fails(
    http: httpx.Client, subject: str
) -> None:
    path = f"/console/api/schemas/{subject}/propose"
    verdict = http.post(path, json={"schema": order(CITY, REQUIRED)}).json()
    assert verdict["verdict"] == "breaking"
    (finding,) = verdict["findings"]
    assert finding["rule"] == "READER_FIELD_MISSING_DEFAULT_VALUE"
    assert "cents" in finding["counter_example"]["event"]
    assert finding["counter_example"]["failure"]
    assert "default" in finding["remedy"]
    assert http.get(f"/subjects/{subject}/versions").json() == [1, 2]


def test_a_fitting_proposal_is_ok_and_a_broken_one_invalid(
    http: httpx.Client, subject: str
) -> None:
    path = f"/console/api/schemas/{subject}/propose"
    fitting = http.post(path, json={"schema": order(CITY, {**CITY, "name": "zip"})}).json()
    assert (fitting["verdict"], fitting["findings"]) == ("ok", [])
    broken = http.post(path, json={"schema": '{"type": "recor"}'}).json()
    assert broken["verdict"] == "invalid"
    assert broken["findings"][0]["text"]
    assert http.post(path, json={"schema": "x", "schemaType": "XML"}).status_code == 400


def test_names_are_found_by_a_part(http: httpx.Client, subject: str) -> None:
    found = http.get("/search", params={"q": subject[3:].upper()}).json()["results"]
    assert {"kind": "subject", "name": subject} in found
    assert http.get("/search", params={"q": "no such name"}).json() == {"results": []}
