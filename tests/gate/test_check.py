"""The gate over a folder, without any server."""

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from penstock.gate.check import CheckOptions
from penstock.gate.folder import ContractFolder
from penstock.gate.proposals import CheckRequest, check_proposed
from penstock.gate.reports import as_github, as_json, as_junit, as_text
from penstock.gate.results import CheckResult, CheckStatus, UpgradeOrder, exit_status
from penstock.schemas.compatibility import Level

Write = Callable[..., Path]
MakeOrder = Callable[..., str]
TODAY = date(2026, 6, 1)


def check(proposed: Path, **more: Any) -> list[CheckResult]:
    return check_proposed(CheckRequest(proposed, **more), CheckOptions(TODAY))


def test_a_folder_is_checked_against_its_own_earlier_versions(
    write: Write, order: MakeOrder
) -> None:
    folder = write(
        {
            "good/v1.avsc": order("a:int"),
            "good/v2.avsc": order("a:int", "b:int=0"),
            "bad/v1.avsc": order("a:int"),
            "bad/v2.avsc": order("a:int", "b:int"),
        }
    )
    bad, good = check(folder)
    assert (bad.status, good.status) == (CheckStatus.BREAKING, CheckStatus.COMPATIBLE)
    assert exit_status([bad, good]) == 1
    (change,) = bad.breaking_changes
    assert (change.path, change.before, change.after) == ("/fields/1", None, 'b: "int"')
    assert bad.passes == (Level.NONE, Level.FORWARD, Level.FORWARD_TRANSITIVE)
    assert (bad.forced_order, bad.safe_order) == (
        UpgradeOrder.CONSUMERS_FIRST,
        UpgradeOrder.PRODUCERS_FIRST,
    )
    assert good.safe_order is UpgradeOrder.ANY


def test_a_break_has_an_event_that_fails(write: Write, order: MakeOrder) -> None:
    folder = write({"a/v1.avsc": order("a:int"), "a/v2.avsc": order("a:int", "b:int")})
    (result,) = check(folder)
    (proof,) = result.proofs
    assert (proof.writer, proof.reader) == ("version 1", "the proposed schema")
    assert proof.evidence.fails is not None
    assert json.loads(proof.evidence.fails.event).keys() == {"a"}


def test_a_compatible_change_has_events_that_are_read(write: Write, order: MakeOrder) -> None:
    folder = write(
        {
            "a/v1.avsc": order("a:int"),
            "a/v2.avsc": order("a:int", "b:int=0"),
            "a/contract.toml": 'compatibility = "FULL"',
        }
    )
    (result,) = check(folder)
    assert [proof.evidence.fails for proof in result.proofs] == [None, None]
    assert all(proof.evidence.reads for proof in result.proofs)


def test_a_transitive_level_compares_all_versions(write: Write, order: MakeOrder) -> None:
    files = {
        "a/v1.avsc": order("a:int", "c:string"),
        "a/v2.avsc": order("a:int"),
        "a/v3.avsc": order("a:int", "c:int=0"),
    }
    assert check(write(files))[0].status is CheckStatus.COMPATIBLE
    files["a/contract.toml"] = 'compatibility = "BACKWARD_TRANSITIVE"'
    (result,) = check(write(files))
    assert (result.status, result.against) == (CheckStatus.BREAKING, 1)


def test_a_file_is_checked_against_a_subject_of_a_folder(
    write: Write, order: MakeOrder, tmp_path: Path
) -> None:
    folder = write({"a/v1.avsc": order("a:int"), "b/v1.avsc": "{"})
    proposed = tmp_path / "new.avsc"
    proposed.write_text(order("a:string"))
    (result,) = check(proposed, subject="a", base=ContractFolder(folder))
    assert result.status is CheckStatus.BREAKING
    (result,) = check(proposed, subject="a", base=ContractFolder(folder), level=Level.NONE)
    assert result.status is CheckStatus.COMPATIBLE


def test_a_file_in_a_folder_of_contracts_identifies_its_subject_and_version(
    write: Write, order: MakeOrder
) -> None:
    folder = write(
        {
            "a/v1.avsc": order("a:int"),
            "a/v2.avsc": order("a:string"),
            "a/v3.avsc": order("a:string", "b:int"),
        }
    )
    (result,) = check(folder / "a" / "v2.avsc")
    assert (result.subject, result.against) == ("a", 1)
    assert result.status is CheckStatus.BREAKING


def test_a_file_without_a_subject_cannot_be_checked(tmp_path: Path) -> None:
    file = tmp_path / "new.avsc"
    file.write_text('"int"')
    (result,) = check(file)
    assert result.status is CheckStatus.UNCHECKED
    assert "--subject" in result.error
    assert exit_status([result]) == 2


def test_an_invalid_subject_does_not_prevent_checking_the_others(
    write: Write, order: MakeOrder
) -> None:
    folder = write({"a/v1.avsc": "{", "b/v1.avsc": order("a:int")})
    invalid, valid = check(folder)
    assert (invalid.status, valid.status) == (CheckStatus.UNCHECKED, CheckStatus.COMPATIBLE)
    assert "a/v1.avsc is not a valid AVRO schema" in invalid.error


def test_a_changed_reference_of_a_published_version_is_a_break(write: Write) -> None:
    money = '{"type": "record", "name": "Money", "fields": []}'
    order = '{"type": "record", "name": "Order", "fields": [{"name": "a", "type": "Money"}]}'
    entry = '[[references]]\nname = "Money"\nsubject = "money"\nversion = '
    files = {"money/v1.avsc": money, "money/v2.avsc": money, "order/v1.avsc": order}
    published = write({**files, "order/contract.toml": entry + "1"}, "published")
    proposed = write({**files, "order/contract.toml": entry + "2"}, "proposed")
    result = check(proposed, base=ContractFolder(published))[1]
    assert [one.kind for one in result.breaking_changes] == ["VERSION_REWRITTEN"]


def test_an_edited_published_version_is_a_break(write: Write, order: MakeOrder) -> None:
    published = write({"a/v1.avsc": order("a:int")}, "published")
    proposed = write({"a/v1.avsc": order("a:long")}, "proposed")
    (result,) = check(proposed, base=ContractFolder(published))
    assert result.status is CheckStatus.BREAKING
    assert [one.kind for one in result.breaking_changes] == ["VERSION_REWRITTEN"]
    assert "v2" in as_text([result])


def test_a_registered_schema_is_no_change(write: Write, order: MakeOrder, tmp_path: Path) -> None:
    folder = write({"a/v1.avsc": order("a:int"), "a/v2.avsc": order("b:int=0")})
    again = tmp_path / "again.avsc"
    again.write_text(order("a:int"))
    (result,) = check(again, subject="a", base=ContractFolder(folder))
    assert (result.status, result.is_known) == (CheckStatus.COMPATIBLE, True)


def readers_files(order: MakeOrder) -> dict[str, str]:
    coupon = 'coupon:["null","string"]=null'
    return {
        "orders-value/v1.avsc": order("id:long", coupon),
        "orders-value/v2.avsc": order("id:long"),
        "orders-value/readers/fraud-scorer.toml": 'version = "7"\nfields = ["coupon"]',
        "orders-value/readers/shipping.toml": 'fields = ["id"]',
    }


def test_removing_a_field_breaks_the_reader_that_uses_it(write: Write, order: MakeOrder) -> None:
    (result,) = check(write(readers_files(order)))
    assert result.breaking_changes == ()  # BACKWARD allows it
    fraud, shipping = result.readers
    assert result.status is CheckStatus.BREAKING
    assert (fraud.status, shipping.status) == (CheckStatus.BREAKING, CheckStatus.COMPATIBLE)
    assert "removing `coupon` breaks fraud-scorer 7" in as_text([result])


def test_an_expired_reader_is_ignored(write: Write, order: MakeOrder) -> None:
    files = readers_files(order)
    files["orders-value/readers/fraud-scorer.toml"] += "\nexpires = 2026-05-31"
    (result,) = check(write(files))
    assert result.status is CheckStatus.COMPATIBLE
    assert "expired on 2026-05-31" in as_text([result])
    reader = "orders-value/readers/fraud-scorer.toml"
    files[reader] = files[reader].replace("05-31", "06-01")
    assert check(write(files))[0].status is CheckStatus.BREAKING


def test_a_reader_is_checked_with_its_own_schema(write: Write, order: MakeOrder) -> None:
    folder = write(
        {
            "a/v1.avsc": order("a:int"),
            "a/v2.avsc": order("a:int", "b:int=0"),
            "a/v3.avsc": order("a:int", "b:int=0", "c:int=0"),
            "a/readers/old.avsc": order("a:int", "z:int"),
            "a/contract.toml": 'compatibility = "FULL"',
        }
    )
    (result,) = check(folder)
    assert result.breaking_changes == ()
    (reader,) = result.readers
    assert [one.kind for one in reader.breaking_changes] == ["READER_FIELD_MISSING_DEFAULT_VALUE"]
    assert reader.proof is not None
    assert reader.proof.evidence.fails is not None


def test_a_reader_of_some_fields_ignores_changes_of_others(write: Write, order: MakeOrder) -> None:
    files = {
        "a/v1.avsc": order("a:int", "b:int"),
        "a/v2.avsc": order("a:int", "b:string"),
        "a/contract.toml": 'compatibility = "NONE"',
        "a/readers/r.toml": 'fields = ["a"]',
    }
    assert check(write(files))[0].status is CheckStatus.COMPATIBLE
    files["a/readers/r.toml"] = 'fields = ["b"]'
    assert check(write(files))[0].status is CheckStatus.BREAKING


def test_protobuf_and_json_are_checked_too(write: Write) -> None:
    proto = 'syntax = "proto3"; message M {{ {} a = 1; }}'
    folder = write(
        {
            "p/v1.proto": proto.format("int32"),
            "p/v2.proto": proto.format("string"),
            "j/v1.json": '{"type": "integer"}',
            "j/v2.json": '{"type": "integer", "maximum": 10}',
        }
    )
    for result in check(folder):
        assert result.status is CheckStatus.BREAKING
        assert result.proofs[0].evidence.fails is not None


def test_another_language_is_a_break(write: Write) -> None:
    folder = write({"a/v1.avsc": '"int"', "a/v2.json": "{}"})
    (result,) = check(folder)
    assert [one.kind for one in result.breaking_changes] == ["DIFFERENT_SCHEMA_TYPE"]
    assert result.safe_order is UpgradeOrder.NONE


def test_an_allowed_change_that_loses_values_gets_a_warning(write: Write) -> None:
    proto = 'syntax = "proto3"; message M {{ {} a = 1; }}'
    folder = write({"p/v1.proto": proto.format("int64"), "p/v2.proto": proto.format("int32")})
    (result,) = check(folder)
    assert result.status is CheckStatus.COMPATIBLE
    assert "beware" in as_text([result])


def test_a_version_is_checked_with_its_own_references(write: Write) -> None:
    money = 'syntax = "proto3"; message Money {{ {} cents = 1; }}'
    order = 'syntax = "proto3"; import "money.proto"; message Order { Money total = 2; }'
    entry = '[[references]]\nname = "money.proto"\nsubject = "money"\n'
    folder = write(
        {
            "money/v1.proto": money.format("int64"),
            "money/v2.proto": money.format("string"),
            "money/contract.toml": 'compatibility = "NONE"',
            "order/v1.proto": order,
            "order/v2.proto": order,
            "order/contract.toml": f"{entry}version = 1\n{entry}version = 2\nsince = 2\n",
        }
    )
    result = next(one for one in check(folder) if one.subject == "order")
    assert result.status is CheckStatus.BREAKING
    assert "FIELD_SCALAR_KIND_CHANGED" in [one.kind for one in result.breaking_changes]


def test_a_renumbered_enum_is_reported_although_the_rules_allow_it(write: Write) -> None:
    proto = 'syntax = "proto3"; message M {{ S s = 1; }} enum S {{ NEW = 0; {} }}'
    folder = write(
        {
            "p/v1.proto": proto.format("PAID = 1; SENT = 2;"),
            "p/v2.proto": proto.format("SENT = 1; PAID = 2;"),
        }
    )
    (result,) = check(folder)
    assert result.status is CheckStatus.COMPATIBLE, "the registry's rules allow it"
    report = as_text([result])
    assert "beware" in report
    assert "written as PAID, read as SENT" in report
    assert "ENUM_VALUE_RENUMBERED" in [one.kind for one in result.lints]


def test_the_report_says_if_a_rule_is_stricter_than_the_data(write: Write) -> None:
    folder = write(
        {
            "j/v1.json": '{"type": "number", "exclusiveMinimum": 5}',
            "j/v2.json": '{"type": "number", "minimum": 5}',
        }
    )
    (result,) = check(folder)
    assert result.status is CheckStatus.BREAKING
    report = as_text([result])
    assert "the rules are stricter than the data" in report
    assert "counter-example" not in report
    (proof,) = json.loads(as_json([result]))["results"][0]["events"]
    assert (proof["refused"], proof["fails"]) == (True, None)


def test_an_alias_of_an_enum_value_is_the_same_value(write: Write) -> None:
    proto = 'syntax = "proto3"; message M {{ S s = 1; }} enum S {{ {} }}'
    folder = write(
        {
            "p/v1.proto": proto.format("NEW = 0; PAID = 1;"),
            "p/v2.proto": proto.format(
                "option allow_alias = true; NEW = 0; SETTLED = 1; PAID = 1; SENT = 2;"
            ),
        }
    )
    (result,) = check(folder)
    assert "beware" not in as_text([result])


@pytest.fixture
def results(write: Write, order: MakeOrder) -> list[CheckResult]:
    files = readers_files(order)
    files["broken/v1.avsc"] = "{"
    files["fine/v1.avsc"] = order("a:int")
    return check(write(files))


def test_json_contains_the_whole_result(results: list[CheckResult]) -> None:
    document = json.loads(as_json(results))
    assert document["status"] == 1
    by_subject = {one["subject"]: one for one in document["results"]}
    assert by_subject["broken"]["status"] == "unchecked"
    fraud = by_subject["orders-value"]["readers"][0]
    assert (fraud["name"], fraud["status"]) == ("fraud-scorer", "breaking")
    assert bytes.fromhex(by_subject["fine"]["events"][0]["reads"]["bytes"])


def test_github_gets_one_line_per_annotation(results: list[CheckResult]) -> None:
    lines = as_github(results).splitlines()
    assert all(line.startswith(("::error ", "::notice ", "::warning ")) for line in lines)
    errors = [line for line in lines if line.startswith("::error")]
    assert len(errors) == 2
    assert any("file=" in line and "v2.avsc" in line for line in errors)


def test_junit_is_xml_with_failures_and_errors(results: list[CheckResult]) -> None:
    suite = ElementTree.fromstring(as_junit(results))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    assert [case.get("name") for case in suite] == ["broken", "fine", "orders-value"]


def test_formats_are_asserted_in_events_on_request(write: Write) -> None:
    folder = write(
        {
            "j/v1.json": '{"type": "string"}',
            "j/v2.json": '{"type": "string", "format": "date-time"}',
        }
    )
    for asserts_formats in (False, True):
        options = CheckOptions(TODAY, asserts_formats=asserts_formats)
        (result,) = check_proposed(CheckRequest(folder), options)
        assert ("beware" in as_text([result])) is asserts_formats
