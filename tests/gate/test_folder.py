"""Contracts in a folder: what is read, and what is said about mistakes."""

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

Shelve = Callable[[dict[str, str]], ContractFolder]
Order = Callable[..., str]


def test_versions_come_in_the_order_of_their_numbers(shelve: Shelve, order: Order) -> None:
    shelf = shelve(
        {
            "orders-value/v10.avsc": order("a:int"),
            "orders-value/v2.avsc": order("b:int"),
            "orders-value/notes.md": "",
        }
    )
    assert shelf.subjects() == ["orders-value"]
    assert [one.number for one in shelf.versions("orders-value")] == [2, 10]
    assert shelf.versions("nobody") == []


def test_a_folder_name_is_the_subject_as_in_an_address(shelve: Shelve, order: Order) -> None:
    shelf = shelve({"shop%2Forder.proto/v1.proto": 'syntax = "proto3"; message M { }'})
    assert shelf.subjects() == ["shop/order.proto"]


def test_terms_are_backward_and_strict_unless_told(shelve: Shelve, order: Order) -> None:
    shelf = shelve(
        {
            "a/v1.avsc": order("a:int"),
            "b/v1.avsc": order("a:int"),
            "b/contract.toml": 'compatibility = "full_transitive"\npolicy = "LENIENT"',
        }
    )
    assert shelf.terms("a") == (Level.BACKWARD, Policy.STRICT, None)
    assert shelf.own_terms("a") is None
    assert shelf.terms("b") == (Level.FULL_TRANSITIVE, Policy.LENIENT, None)


def test_references_lead_to_other_folders(shelve: Shelve, order: Order) -> None:
    money = '{"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "long"}]}'
    reference = '[[references]]\nname = "Money"\nsubject = "money"\nversion = 1\nsince = 2'
    shelf = shelve(
        {
            "money/v1.avsc": money,
            "orders/v1.avsc": order("a:int"),
            "orders/v2.avsc": order("a:int", 'total:"Money"'),
            "orders/contract.toml": reference,
        }
    )
    first, second = shelf.versions("orders")
    assert first.source.references == ()
    assert second.source.references == (Reference("Money", "money", 1),)


def reference(version: int, since: int | None = None) -> str:
    """An entry of contract.toml for Money."""
    ending = "" if since is None else f"since = {since}\n"
    return f'[[references]]\nname = "Money"\nsubject = "money"\nversion = {version}\n{ending}'


@pytest.mark.parametrize("is_newest_first", [False, True])
def test_of_references_with_one_name_the_latest_since_counts(
    shelve: Shelve, order: Order, is_newest_first: bool
) -> None:
    money = {"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "long"}]}
    entries = [reference(1), reference(2, since=2), reference(3, since=4)]
    files = {f"money/v{number}.avsc": json.dumps(money) for number in (1, 2, 3)}
    files |= {f"orders/v{number}.avsc": order('total:"Money"') for number in (1, 2, 3, 4)}
    entries = entries[::-1] if is_newest_first else entries
    files["orders/contract.toml"] = "\n".join(entries)
    found = [one.source.references for one in shelve(files).versions("orders")]
    assert found == [(Reference("Money", "money", number),) for number in (1, 2, 2, 3)]


def test_a_reader_is_a_schema_or_a_list_of_fields_or_both(shelve: Shelve, order: Order) -> None:
    shelf = shelve(
        {
            "orders/v1.avsc": order("a:int", "b:int"),
            "orders/readers/by-fields.toml": 'fields = ["a"]\nversion = "7"\nowner = "risk"',
            "orders/readers/by-schema.avsc": order("b:int"),
            "orders/readers/by-version.toml": "reads = 1\nexpires = 2030-01-31",
        }
    )
    by_fields, by_schema, by_version = shelf.readers("orders")
    assert (by_fields.title, by_fields.owner) == ("by-fields 7", "risk")
    assert by_fields.only_fields
    assert by_fields.schema is None
    assert by_schema.schema is not None
    assert by_version.last_day == date(2030, 1, 31)
    assert by_version.schema is shelf.versions("orders")[0].schema


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"a/v1.avsc": "{"}, "is not a valid AVRO schema"),
        ({"a/v1.avsc": '"int"', "a/v1.json": "{}"}, "a version has one file"),
        ({"a/v1.avsc": '"int"', "a/contract.toml": "compatibility = 1"}, "is one of NONE"),
        ({"a/v1.avsc": '"int"', "a/contract.toml": 'mode = "FULL"'}, "nobody knows 'mode'"),
        ({"a/v1.avsc": '"int"', "a/contract.toml": "x"}, "is not TOML"),
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
def test_a_mistake_is_named_with_its_file(files: dict[str, str], said: str, shelve: Shelve) -> None:
    shelf = shelve(files)
    with pytest.raises(CannotCheckError) as wrong:
        ask_all(shelf)
    assert said in str(wrong.value)


def ask_all(shelf: ContractFolder) -> list[Any]:
    return [(shelf.versions(one), shelf.terms(one), shelf.readers(one)) for one in shelf.subjects()]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(CannotCheckError, match="is not a folder"):
        ContractFolder(tmp_path / "nothing")


def test_references_that_form_a_cycle_are_refused(shelve: Shelve) -> None:
    reference = '[[references]]\nname = "{0}"\nsubject = "{0}"\nversion = 1'
    shelf = shelve(
        {
            "a/v1.json": "{}",
            "a/contract.toml": reference.format("b"),
            "b/v1.json": "{}",
            "b/contract.toml": reference.format("a"),
        }
    )
    with pytest.raises(CannotCheckError, match="form a cycle"):
        shelf.versions("a")
