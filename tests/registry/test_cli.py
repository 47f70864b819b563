"""`penstock schema` against a real registry."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from penstock.cli.main import build
from penstock.gate.advice import upgrade_advice
from penstock.gate.check import check_pair
from penstock.schemas.model import ParsedSchema, SchemaText, SchemaType
from penstock.schemas.parse_cache import parse

Record = Callable[..., str]


@pytest.fixture
def run(node: Any) -> Callable[..., Result]:
    def invoke(*words: str, registry: str = node.url) -> Result:
        result = CliRunner().invoke(build(["schema", "http"]), ["schema", *words, "-r", registry])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    def write_file(text: str, name: str = "schema.avsc") -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write_file


def test_a_schema_is_registered_listed_shown_and_deleted(
    run: Any, write: Any, subject: str, record: Record
) -> None:
    made = json.loads(run("register", subject, write(record("a:int")), "--json").stdout)
    assert (made["subject"], made["version"]) == (subject, 1)
    assert "version 1 has id" in run("register", subject, write(record("a:int"))).stdout
    (row,) = json.loads(run("list", subject, "--json").stdout)
    assert row == {
        "subject": subject,
        "type": "AVRO",
        "versions": [1],
        "id": made["id"],
        "level": "BACKWARD",
    }
    assert subject in run("list", subject).stdout
    assert json.loads(run("get", subject).stdout)["name"] == "R"
    assert json.loads(run("get", subject, "--json").stdout)["id"] == made["id"]
    assert "(soft;" in run("delete", subject).stdout
    gone = json.loads(run("delete", subject, "--permanent", "--json").stdout)
    assert gone["deleted"] == [1]
    assert "No schemas." in run("list", subject).stdout


def test_usage_shows_the_readers_of_a_version_and_the_reasons_not_to_delete_it(
    run: Any, write: Any, subject: str, record: Record, node: Any
) -> None:
    schema_id = json.loads(run("register", subject, write(record("a:int")), "--json").stdout)["id"]
    headers = {"penstock-client": "fraud-scorer", "penstock-role": "consumer"}
    httpx.get(f"{node.url}/schemas/ids/{schema_id}", headers=headers).raise_for_status()
    output = run("usage", subject).stdout
    assert f"{subject} version 1 (id {schema_id}): in use: keep it" in output
    assert "it is the latest version" in output
    assert "fraud-scorer" in output
    assert "LAST SEEN" in output
    uses = json.loads(run("usage", subject, "--json").stdout)["uses"]
    assert "fraud-scorer" in {use["client"] for use in uses}
    missing = run("usage", "unknown-value")
    assert missing.exit_code == 1
    assert "40401" in missing.stderr


def test_a_check_fails_with_reasons_made_for_people(
    run: Any, write: Any, subject: str, record: Record
) -> None:
    run("register", subject, write(record("a:int")))
    bad = write(record("a:int", "b:string"), "bad.avsc")
    refused = run("check", subject, bad)
    assert refused.exit_code == 1
    assert "/fields/1" in refused.stdout
    assert "Fix:    give the field a default" in refused.stdout
    assert json.loads(run("check", subject, bad, "--json").stdout)["is_compatible"] is False
    fine = run("check", subject, write(record("a:int", "b:int=0"), "fine.avsc"))
    assert (fine.exit_code, fine.stdout) == (0, f"{subject} would accept it (BACKWARD)\n")


def test_a_difference_is_explained_in_plain_words(
    run: Any, write: Any, subject: str, record: Record
) -> None:
    run("register", subject, write(record("a:int")))
    output = run("diff", subject, "latest", write(record("a:int", "b:string"), "new.avsc")).stdout
    assert "Breaks: consumers with the new schema cannot read existing events" in output
    assert "Allowed by: NONE, FORWARD" in output
    assert "Upgrade first: producers" in output
    run("register", subject, write(record("a:int", "b:int=0")))
    document = json.loads(run("diff", subject, "1", "2", "--json").stdout)
    assert document["changes"] == []
    assert document["allowed"] == ["NONE", "BACKWARD", "FORWARD", "FULL"]
    assert document["upgrade_first"].startswith("any:")


def test_what_is_exported_is_imported_with_its_ids(
    run: Any, start_node: Any, write: Any, tmp_path: Path, subject: str, record: Record
) -> None:
    run("register", f"{subject}-base", write(record("x:int", name="Base")))
    reference = f"Base={subject}-base:1"
    outer = write(record("b:Base", name="Outer"), "outer.avsc")
    run("register", subject, outer, "--reference", reference)
    run(
        "register",
        subject,
        write(record("b:Base", "c:int=0", name="Outer")),
        "--reference",
        reference,
    )
    kept = tmp_path / "kept.jsonl"
    run("export", str(kept), "--prefix", subject)
    lines = kept.read_text().splitlines()
    assert len(lines) == 3
    kept.write_text("\n".join(reversed(lines)))
    other = start_node("_schemas-import")
    imported = run("import", str(kept), "--json", registry=other.url)
    assert json.loads(imported.stdout) == {"subjects": 2, "versions": 3, "settings": 0}
    again = CliRunner().invoke(build(["schema"]), ["schema", "export", "-r", other.url])

    def plain(rows: list[str]) -> list[dict[str, Any]]:
        return [{k: v for k, v in json.loads(row).items() if k != "ts"} for row in rows]

    assert plain(again.stdout.splitlines()[:3]) == plain(lines)
    assert httpx.get(f"{other.url}/mode/{subject}").json()["error_code"] == 40409
    other.end()


def test_levels_policies_and_modes_move_with_the_schemas(
    run: Any, start_node: Any, write: Any, tmp_path: Path, subject: str, record: Record
) -> None:
    home, other = start_node("_schemas-home"), start_node("_schemas-away")
    names = [subject, f":.team:{subject}", f"{subject}-plain"]
    reader = f":.readers:{subject}/bi"
    for name in (*names, reader):
        run("register", name, write(record("a:int")), registry=home.url)
    configs = {
        names[0]: {"compatibility": "FULL_TRANSITIVE", "compatibilityPolicy": "LENIENT"},
        ":.team:": {"compatibility": "NONE"},
        "": {"compatibility": "FORWARD", "normalize": True},
    }
    for scope, body in configs.items():
        assert httpx.put(f"{home.url}/config/{scope}", json=body).is_success
    assert httpx.put(f"{home.url}/mode/{names[0]}", json={"mode": "READONLY"}).is_success

    kept = tmp_path / "kept.jsonl"
    run("export", str(kept), registry=home.url)
    assert run("import", str(kept), registry=other.url).exit_code == 0
    for path in (f"config/{names[0]}", f"mode/{names[0]}", "config/:.team:", "config", "mode"):
        before, after = (httpx.get(f"{one.url}/{path}").json() for one in (home, other))
        assert before == after, path
    assert httpx.get(f"{other.url}/config/{names[2]}").json()["error_code"] == 40408
    readers = {"subjectPrefix": ":.readers:"}
    assert httpx.get(f"{other.url}/subjects", params=readers).json() == [reader]

    assert httpx.put(f"{other.url}/config", json={"compatibility": "NONE"}).is_success
    again = run("import", str(kept), registry=other.url)
    assert "--with-global" in again.stderr
    assert httpx.get(f"{other.url}/config").json()["compatibilityLevel"] == "NONE"
    run("import", str(kept), "--with-global", registry=other.url)
    assert httpx.get(f"{other.url}/config").json()["compatibilityLevel"] == "FORWARD"
    home.end()
    other.end()


def test_what_goes_wrong_is_said_with_what_to_do(run: Any, write: Any, subject: str) -> None:
    unknown = run("get", "unknown")
    assert (unknown.exit_code, unknown.stderr) == (
        1,
        "penstock: version latest of unknown: Subject 'unknown' not found. (registry code 40401)\n",
    )
    unreachable = run("list", registry="http://127.0.0.1:9")
    assert unreachable.exit_code == 3
    assert "penstock up" in unreachable.stderr
    assert run("register", subject, "/nowhere.avsc").exit_code == 1
    assert run("register", subject, write("x", "schema.txt")).exit_code == 2
    assert run("register", subject, write("x"), "--type", "xsd").exit_code == 2
    assert run("register", subject, write("x"), "--reference", "x").exit_code == 2
    assert "Invalid schema" in run("register", subject, write("x")).stderr


def parsed(text: str, language: SchemaType) -> ParsedSchema:
    return parse(SchemaText(language, text))


def test_a_change_without_a_safe_order_is_reported() -> None:
    one = parsed(
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}', SchemaType.AVRO
    )
    other = parsed(
        '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}', SchemaType.AVRO
    )
    result = check_pair(one, other)
    assert [str(level) for level in result.passes] == ["NONE"]
    assert upgrade_advice(result.safe_order).startswith("no order is safe")
    assert {change.kind for change in result.breaking_changes} == {"TYPE_MISMATCH"}


def test_every_language_is_explained() -> None:
    message = 'syntax = "proto3"; message M { %s a = 1; }'
    proto = check_pair(
        parsed(message % "int32", SchemaType.PROTOBUF),
        parsed(message % "string", SchemaType.PROTOBUF),
    )
    assert "new number" in proto.breaking_changes[0].remedy
    document = '{"type":"object","properties":{"a":{"type":"%s"}}}'
    schema = check_pair(
        parsed(document % "integer", SchemaType.JSON), parsed(document % "string", SchemaType.JSON)
    )
    assert schema.breaking_changes[0].remedy
