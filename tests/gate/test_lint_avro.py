import json
from typing import Any

import pytest

from penstock.gate.lint import lint
from penstock.schemas.avro import parse

ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"], "default": "A"}


def record(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "namespace": "n", "fields": list(fields), **more}


def field(type_: Any, **more: Any) -> dict[str, Any]:
    return {"name": "x", "type": type_, **more}


def logical(base: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": name, **more}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return logical("bytes", "decimal", precision=precision, scale=scale)


@pytest.mark.parametrize(
    ("old", "new", "kind", "path"),
    [
        (
            record(field(logical("long", "timestamp-millis"))),
            record(field(logical("long", "timestamp-micros"))),
            "LOGICAL_TYPE_CHANGED",
            "/fields/0/type",
        ),
        (
            record(field(["null", logical("long", "timestamp-millis")])),
            record(field(["null", logical("long", "timestamp-micros")])),
            "LOGICAL_TYPE_CHANGED",
            "/fields/0/type/1",
        ),
        (
            record(field(logical("int", "date"))),
            record(field(logical("long", "timestamp-millis"))),
            "LOGICAL_TYPE_CHANGED",
            "/fields/0/type",
        ),
        (
            record(field(decimal(9, 2))),
            record(field(decimal(9, 3))),
            "DECIMAL_SCALE_CHANGED",
            "/fields/0/type",
        ),
        (
            record(field(decimal(9, 2))),
            record(field(decimal(8, 2))),
            "DECIMAL_PRECISION_REDUCED",
            "/fields/0/type",
        ),
        (
            record({"name": "a", "type": "int", "default": 0}),
            record({"name": "b", "type": "int", "default": 0}),
            "RENAMED_WITHOUT_ALIAS",
            "/fields/0",
        ),
        (
            record(field("int", default=1)),
            record(field("int", default=2)),
            "DEFAULT_CHANGED",
            "/fields/0",
        ),
        (record(), record(doc="d"), "DOCUMENTATION_ONLY", "/"),
        (record(), record(namespace="m"), "NAMESPACE_CHANGED", "/"),
        (record(), record(name="S"), "TYPE_RENAMED", "/"),
        (ENUM, {**ENUM, "symbols": ["A"]}, "ENUM_SYMBOL_REMOVED", "/"),
        (record(field("long")), record(field("double")), "LOSSY_PROMOTION", "/fields/0/type"),
        (record(field("bytes")), record(field("string")), "LOSSY_PROMOTION", "/fields/0/type"),
        (
            None,
            {"type": "array", "items": {"type": "enum", "name": "E", "symbols": ["A"]}},
            "ENUM_WITHOUT_DEFAULT",
            "/items",
        ),
        (
            None,
            record(field("long", logicalType="timestamp-millis")),
            "LOGICAL_TYPE_ON_FIELD",
            "/fields/0",
        ),
        (None, logical("string", "timestamp-millis"), "LOGICAL_TYPE_IGNORED", "/"),
        (None, decimal(2, 9), "LOGICAL_TYPE_IGNORED", "/"),
        (
            None,
            record(field(["null", "int"], default=5)),
            "DEFAULT_NOT_OF_FIRST_BRANCH",
            "/fields/0",
        ),
    ],
)
def test_a_misleading_change_gets_a_warning(old: Any, new: Any, kind: str, path: str) -> None:
    earlier = None if old is None else parse(json.dumps(old))
    lints = lint(parse(json.dumps(new)), earlier)
    assert [(one.kind, one.path) for one in lints] == [(kind, path)]
    assert lints[0].message
    assert lints[0].remedy


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (record(field("int")), record(field("int"))),
        (record(field("int")), record(field("long"))),
        (record(field("int")), record({"name": "y", "type": "int", "aliases": ["x"]})),
        (record(), record(name="S", aliases=["R"])),
        (record(field("int")), record(field("int"), {"name": "y", "type": "int", "default": 0})),
        (ENUM, {**ENUM, "symbols": ["A", "B", "C"]}),
        (record(field(["null", "R"])), record(field(["null", "R"], default=None))),
    ],
)
def test_a_harmless_change_gets_no_warning(old: Any, new: Any) -> None:
    assert lint(parse(json.dumps(new)), parse(json.dumps(old))) == ()
