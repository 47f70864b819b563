"""Registered readers have a say in every registration, and only where there are some."""

import json
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from penstock.schemas.readers import EXPIRES, FIELDS, ONLY_FIELDS, VERSION, reader_subject

WITH_COUPON = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "coupon", "type": ["null", "string"], "default": None},
    ],
}
WITHOUT = {**WITH_COUPON, "fields": WITH_COUPON["fields"][:1]}


def path(subject: str) -> str:
    return f"/subjects/{quote(subject, safe='')}"


def register(http: httpx.Client, subject: str, schema: Any, **more: Any) -> httpx.Response:
    body = {"schema": json.dumps(schema), **more}
    return http.post(f"{path(subject)}/versions", json=body)


def declare(http: httpx.Client, subject: str, **properties: str) -> str:
    kept = reader_subject(subject, "fraud-scorer")
    metadata = {"properties": {VERSION: "7", FIELDS: "coupon", **properties}}
    answer = register(http, kept, WITH_COUPON, metadata=metadata)
    assert answer.status_code == 200, answer.text
    return kept


@pytest.fixture
def orders(http: httpx.Client, subject: str) -> str:
    assert register(http, subject, WITH_COUPON).status_code == 200
    return subject


def test_a_version_that_takes_a_field_from_a_reader_is_declined(
    http: httpx.Client, orders: str
) -> None:
    declare(http, orders)
    declined = register(http, orders, WITHOUT)
    assert (declined.status_code, declined.json()["error_code"]) == (409, 40901)
    said = declined.json()["message"]
    assert "removing `coupon` breaks fraud-scorer 7, which uses it" in said
    assert register(http, orders, WITH_COUPON).json()["version"] == 1, "it is there already"
    forced = http.post(
        f"{path(orders)}/versions", params={"force": "true"}, json={"schema": json.dumps(WITHOUT)}
    )
    assert forced.status_code == 200


def test_the_compatibility_check_says_what_registration_would(
    http: httpx.Client, orders: str
) -> None:
    declare(http, orders)
    body = {"schema": json.dumps(WITHOUT)}
    for version in ("", "/latest"):
        where = f"/compatibility{path(orders)}/versions{version}"
        result = http.post(where, params={"verbose": "true"}, json=body).json()
        assert result["is_compatible"] is False
        assert "reader:'fraud-scorer 7'" in result["messages"][0]
    one = http.post(f"/compatibility{path(orders)}/versions/1", json=body).json()
    assert one == {"is_compatible": True}, "asked about one version, that is all it says"


@pytest.mark.parametrize("level", ["NONE", "FULL_TRANSITIVE"])
def test_readers_count_at_every_level(http: httpx.Client, orders: str, level: str) -> None:
    declare(http, orders)
    http.put(f"/config/{orders}", json={"compatibility": level})
    assert register(http, orders, WITHOUT).status_code == 409


def test_a_reader_that_expired_or_retired_does_not_block_a_change(
    http: httpx.Client, orders: str
) -> None:
    kept = declare(http, orders, **{EXPIRES: "2020-01-01"})
    assert register(http, orders, WITHOUT).status_code == 200
    http.delete(f"{path(orders)}/versions/latest")
    declare(http, orders, **{EXPIRES: "2999-01-01"})
    assert register(http, orders, WITHOUT).status_code == 409
    assert http.delete(path(kept)).status_code == 200
    assert register(http, orders, WITHOUT).status_code == 200


def test_readers_of_another_subject_do_not_block_a_change(http: httpx.Client, orders: str) -> None:
    declare(http, f"{orders}-2")
    declare(http, f":.eu:{orders}")
    assert register(http, orders, WITHOUT).status_code == 200


def test_a_reader_that_is_not_understood_is_named(http: httpx.Client, orders: str) -> None:
    declare(http, orders, **{EXPIRES: "soon"})
    declined = register(http, orders, WITHOUT)
    assert declined.status_code == 409
    assert "declare it again or retire it" in declined.json()["message"]


def test_readers_are_listed_only_where_their_context_is_named(
    http: httpx.Client, orders: str
) -> None:
    kept = declare(http, orders)

    def listed(path: str, **params: Any) -> list[Any]:
        found: list[Any] = http.get(path, params=params).json()
        return found

    for params in ({}, {"subjectPrefix": ":*:"}, {"deleted": "true"}):
        assert not [one for one in listed("/subjects", **params) if one.startswith(":.readers:")]
        assert kept not in [one["subject"] for one in listed("/schemas", **params)]
    assert ".readers" not in listed("/contexts")
    guid = http.get(f"{path(orders)}/versions/1").json()["guid"]
    assert [one["context"] for one in listed(f"/schemas/guids/{guid}/ids")] == ["."]
    assert kept in listed("/subjects", subjectPrefix=":.readers:")
    assert [one["subject"] for one in listed("/schemas", subjectPrefix=kept)] == [kept]
    assert listed("/contexts", contextPrefix=".readers") == [".readers"]


def test_renaming_a_protobuf_field_that_a_reader_uses_by_name_is_declined(
    http: httpx.Client, subject: str
) -> None:
    def put(name: str, where: str = subject, **more: Any) -> httpx.Response:
        text = f'syntax = "proto3"; message M {{ string {name} = 2; }}'
        body = {"schema": text, "schemaType": "PROTOBUF", **more}
        return http.post(f"{path(where)}/versions", json=body)

    assert put("mail").status_code == 200
    properties = {VERSION: "1", FIELDS: "mail", ONLY_FIELDS: "true"}
    kept = reader_subject(subject, "bi")
    assert put("mail", kept, metadata={"properties": properties}).status_code == 200
    declined = put("email")
    assert declined.json()["error_code"] == 40901
    assert "renaming `mail` to `email` breaks bi 1" in declined.json()["message"]
