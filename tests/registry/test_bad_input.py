"""Whatever comes in, the answer is an error in Confluent's codes, and nothing is half-written."""

import json
from typing import Any

import httpx
import pytest

DEEP = 5000


def nested_avro() -> str:
    return '{"type":"array","items":' * DEEP + '"int"' + "}" * DEEP


BODIES: dict[str, tuple[Any, int]] = {
    "no json": (b"{", 400),
    "no utf-8": (b'{"schema": "\xff"}', 400),
    "a list": (b"[]", 400),
    "a number": (b"1", 400),
    "nothing": (b"", 42201),
    "null": (b"null", 42201),
    "nested too deeply": (b"[" * 100_000, 400),
    "schema is an object": ({"schema": {}}, 400),
    "schema is missing": ({}, 42201),
    "schema is empty": ({"schema": ""}, 42201),
    "schema is no avro": ({"schema": "hello"}, 42201),
    "schema is a bad record": ({"schema": '{"type":"record"}'}, 42201),
    "schema nests deeply": ({"schema": nested_avro()}, 42201),
    "half a surrogate pair": (
        {"schema": '{"type":"enum","name":"E","symbols":["A"],"doc":"\\ud800"}'},
        42201,
    ),
    "unknown type": ({"schema": '"int"', "schemaType": "XSD"}, 42201),
    "type is a list": ({"schema": '"int"', "schemaType": []}, 400),
    "references is text": ({"schema": '"int"', "references": "x"}, 400),
    "a reference is text": ({"schema": '"int"', "references": ["x"]}, 400),
    "a reference without subject": ({"schema": '"int"', "references": [{"name": "x"}]}, 42201),
    "version is text": ({"schema": '"int"', "version": "one"}, 400),
    "version is huge": ({"schema": '"int"', "version": 2**40}, 400),
    "metadata is text": ({"schema": '"int"', "metadata": "x"}, 400),
    "tags are text": ({"schema": '"int"', "metadata": {"tags": {"a": "x"}}}, 400),
    "rules are text": ({"schema": '"int"', "ruleSet": {"domainRules": "x"}}, 400),
    "a rule is text": ({"schema": '"int"', "ruleSet": {"domainRules": ["x"]}}, 400),
    "a bad rule": ({"schema": '"int"', "ruleSet": {"domainRules": [{"name": "a"}]}}, 42210),
    "a broken proto": ({"schema": "message {", "schemaType": "PROTOBUF"}, 42201),
    "ten megabytes": ({"schema": '"' + "x" * (10 << 20) + '"'}, 42209),
    "five megabytes": ({"schema": '"' + "x" * (5 << 20) + '"'}, 42209),
}


@pytest.mark.parametrize("case", BODIES)
def test_a_bad_body_is_declined(http: httpx.Client, subject: str, case: str) -> None:
    body, expected = BODIES[case]
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    for path in (
        f"/subjects/{subject}/versions",
        f"/compatibility/subjects/{subject}/versions/latest",
    ):
        if path.startswith("/compat") and expected == 42210:
            continue  # a check looks at the schema only
        answer = http.post(path, content=raw, headers=headers)
        assert answer.json()["error_code"] == expected, answer.text[:300]
        assert answer.status_code == (expected if expected < 1000 else expected // 100)
    assert subject not in http.get("/subjects?deleted=true").json()


def test_a_schema_larger_than_a_record_is_declined(http: httpx.Client, subject: str) -> None:
    schema = json.dumps({"type": "int", "note": "x" * (1 << 20)})
    answer = http.post(f"/subjects/{subject}/versions", json={"schema": schema})
    assert answer.json()["error_code"] == 42209
    assert subject not in http.get("/subjects?deleted=true").json()


def test_an_error_about_a_long_name_is_short(http: httpx.Client, subject: str) -> None:
    schema = json.dumps({"type": "x" * 500_000, "name": "y" * 500_000})
    for path in (f"/subjects/{subject}/versions", f"/compatibility/subjects/{subject}/versions"):
        answer = http.post(f"{path}?verbose=true", json={"schema": schema})
        assert len(answer.content) < 20_000


@pytest.mark.parametrize("version", ["0", "-2", "x", "1.0", "2147483648", "99999999999999", "1e1"])
def test_a_bad_version_is_declined(http: httpx.Client, version: str) -> None:
    answer = http.get(f"/subjects/s/versions/{version}")
    assert answer.json() == {
        "error_code": 42202,
        "message": f"The specified version '{version}' is not a valid version id. "
        'Allowed values are between [1, 2^31-1] and the string "latest"',
    }


@pytest.mark.parametrize("name", ["__GLOBAL", "__EMPTY", "a%00b", "a%0Ab", ":.__GLOBAL:x", ":.eu:"])
def test_a_bad_subject_is_declined(http: httpx.Client, name: str) -> None:
    answer = http.post(f"/subjects/{name}/versions", json={"schema": '"int"'})
    assert answer.json()["error_code"] == 42208
    assert http.delete(f"/subjects/{name}").json()["error_code"] == 42208


@pytest.mark.parametrize("schema_id", ["x", "1.5", "99999999999999999999", "-1"])
def test_a_bad_id_is_not_found(http: httpx.Client, schema_id: str) -> None:
    assert http.get(f"/schemas/ids/{schema_id}").status_code == 404


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"mode": []}', b'{"compatibility": {}}'])
def test_bad_settings_are_declined(http: httpx.Client, subject: str, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    for path in (f"/config/{subject}", f"/mode/{subject}"):
        answer = http.put(path, content=body, headers=headers)
        assert answer.status_code in (400, 422)
        assert answer.json()["error_code"] in (400, 42203, 42204)
