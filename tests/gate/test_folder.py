"""Contracts in a folder: what is read, and the errors."""

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from penstock.gate.contracts import CannotCheckError
from penstock.gate.folder import ContractFolder
from penstock.schemas.compatibility import Level
from penstock.schemas.model import Policy, Reference

MakeFolder = Callable[[dict[str, str]], ContractFolder]
Order = Callable[..., str]


def test_versions_are_sorted_by_number(make_folder: MakeFolder, order: Order) -> None:
    folder = make_folder(
        {
            "orders-value/v10.avsc": order("a:int"),
            "orders-value/v2.avsc": order("b:int"),
            "orders-value/notes.md": "",
        }
    )
    assert folder.subjects() == ["orders-value"]
    assert [one.number for one in folder.versions("orders-value")] == [2, 10]
    assert folder.versions("unknown") == []


def test_a_folder_name_is_the_percent_encoded_subject(make_folder: MakeFolder) -> None:
    folder = make_folder({"shop%2Forder.proto/v1.proto": 'syntax = "proto3"; message M { }'})
    assert folder.subjects() == ["shop/order.proto"]


def test_settings_default_to_backward_and_strict(make_folder: MakeFolder, order: Order) -> None:
    folder = make_folder(
        {
            "a/v1.avsc": order("a:int"),
            "b/v1.avsc": order("a:int"),
            "b/contract.toml": 'compatibility = "full_transitive"\npolicy = "LENIENT"',
        }
    )
    assert folder.settings("a") == (Level.BACKWARD, Policy.STRICT, None)
    assert folder.own_settings("a") is None
    assert folder.settings("b") == (Level.FULL_TRANSITIVE, Policy.LENIENT, None)


def test_references_are_to_other_folders(make_folder: MakeFolder, order: Order) -> None:
    money = '{"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "long"}]}'
    reference = '[[references]]\nname = "Money"\nsubject = "money"\nversion = 1\nsince = 2'
    folder = make_folder(
        {
            "money/v1.avsc": money,
            "orders/v1.avsc": order("a:int"),
            "orders/v2.avsc": order("a:int", 'total:"Money"'),
            "orders/contract.toml": reference,
        }
    )
    first, second = folder.versions("orders")
    assert first.source.references == ()
    assert second.source.references == (Reference("Money", "money", 1),)


def reference(version: int, since: int | None = None) -> str:
    """An entry of contract.toml for Money."""
    ending = "" if since is None else f"since = {since}\n"
    return f'[[references]]\nname = "Money"\nsubject = "money"\nversion = {version}\n{ending}'


@pytest.mark.parametrize("is_newest_first", [False, True])
def test_of_references_with_one_name_the_latest_since_counts(
    make_folder: MakeFolder, order: Order, is_newest_first: bool
) -> None:
    money = {"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "long"}]}
    entries = [reference(1), reference(2, since=2), reference(3, since=4)]
    files = {f"money/v{number}.avsc": json.dumps(money) for number in (1, 2, 3)}
    files |= {f"orders/v{number}.avsc": order('total:"Money"') for number in (1, 2, 3, 4)}
    entries = entries[::-1] if is_newest_first else entries
    files["orders/contract.toml"] = "\n".join(entries)
    versions = make_folder(files).versions("orders")
    assert [version.source.references for version in versions] == [
        (Reference("Money", "money", number),) for number in (1, 2, 2, 3)
    ]


def test_a_reader_is_a_schema_or_a_list_of_fields_or_both(
    make_folder: MakeFolder, order: Order
) -> None:
    folder = make_folder(
        {
            "orders/v1.avsc": order("a:int", "b:int"),
            "orders/readers/by-fields.toml": 'fields = ["a"]\nversion = "7"\nowner = "risk"',
            "orders/readers/by-schema.avsc": order("b:int"),
            "orders/readers/by-version.toml": "reads = 1\nexpires = 2030-01-31",
        }
    )
    by_fields, by_schema, by_version = folder.readers("orders")
    assert (by_fields.title, by_fields.owner) == ("by-fields 7", "risk")
    assert by_fields.only_fields
    assert by_fields.schema is None
    assert by_schema.schema is not None
    assert by_version.last_day == date(2030, 1, 31)
    assert by_version.schema is folder.versions("orders")[0].schema


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a/v1.avsc": "{"}, "is not a valid AVRO schema"),
        ({"a/v1.avsc": '"int"', "a/v1.json": "{}"}, "a version has one file"),
        ({"a/v1.avsc": '"int"', "a/contract.toml": "compatibility = 1"}, "must be one of NONE"),
        ({"a/v1.avsc": '"int"', "a/contract.toml": 'mode = "FULL"'}, "unknown key 'mode'"),
        ({"a/v1.avsc": '"int"', "a/contract.toml": "x"}, "is not valid TOML"),
        (
            {
                "a/v1.avsc": '"int"',
                "a/contract.toml": '[[references]]\nname = "x"\nsubject = "b"\nversion = 3',
            },
            "refers to version 3 of b: not found",
        ),
        (
            {"a/v1.avsc": '"int"', "a/contract.toml": reference(1) + reference(2)},
            "two references named 'Money' with since = 1",
        ),
        (
            {"a/v1.avsc": '"int"', "a/contract.toml": reference(1) + 'since = "2"'},
            "whole numbers",
        ),
        ({"a/v1.avsc": '"int"', "a/readers/r.toml": "reads = 4"}, "no such version"),
        ({"a/v1.avsc": '"int"', "a/readers/r.toml": 'expires = "soon"'}, "a date without quotes"),
        ({"a/v1.avsc": '"int"', "a/readers/r.toml": 'fields = "a"'}, "a list of names"),
    ],
)
def test_an_error_names_the_file(
    files: dict[str, str], message: str, make_folder: MakeFolder
) -> None:
    folder = make_folder(files)
    with pytest.raises(CannotCheckError) as error:
        read_all(folder)
    assert message in str(error.value)


def read_all(folder: ContractFolder) -> list[Any]:
    return [
        (folder.versions(subject), folder.settings(subject), folder.readers(subject))
        for subject in folder.subjects()
    ]


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotCheckError, match="is not a folder"):
        ContractFolder(tmp_path / "nothing")


def test_references_that_form_a_cycle_are_refused(make_folder: MakeFolder) -> None:
    reference = '[[references]]\nname = "{0}"\nsubject = "{0}"\nversion = 1'
    folder = make_folder(
        {
            "a/v1.json": "{}",
            "a/contract.toml": reference.format("b"),
            "b/v1.json": "{}",
            "b/contract.toml": reference.format("a"),
        }
    )
    with pytest.raises(CannotCheckError, match="form a cycle"):
        folder.versions("a")
