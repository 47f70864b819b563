"""The gate and the registry give the same result for every case of the compatibility tables."""

import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.client.registry_api import RegistryApi
from penstock.client.registry_documents import schema_body
from penstock.gate.check import CheckOptions, check
from penstock.gate.contracts import parse_schema
from penstock.gate.registry_contracts import RegistryContracts
from penstock.gate.results import CheckResult
from penstock.schemas.compatibility import Level
from penstock.schemas.model import Policy, SchemaText, SchemaType

TABLES = Path(__file__).parents[1] / "schemas"
DRAFTS = {
    "4": "http://json-schema.org/draft-04/schema#",
    "6": "http://json-schema.org/draft-06/schema#",
    "7": "http://json-schema.org/draft-07/schema#",
    "19": "https://json-schema.org/draft/2019-09/schema",
    "20": "https://json-schema.org/draft/2020-12/schema",
}


class Case(NamedTuple):
    """Two schemas of a table."""

    old: SchemaText
    new: SchemaText


def avro_cases() -> Iterator[Case]:
    for case in json.loads((TABLES / "avro" / "cases.json").read_text()):
        yield Case(
            *(SchemaText(SchemaType.AVRO, json.dumps(case[side])) for side in ("old", "new"))
        )


def steps(table: str) -> Iterator[str]:
    """The line above each rule of a case file."""
    lines = (TABLES / table / "cases.case").read_text().splitlines()
    for number, line in enumerate(lines):
        if line == "----":
            yield lines[number - 1].split(" #")[0].strip()


def protobuf_cases() -> Iterator[Case]:
    for step in steps("protobuf"):
        syntax = "proto2" if step.startswith("2: ") else "proto3"
        yield Case(*(protobuf(one, syntax) for one in step.removeprefix("2: ").split("=>")))


def protobuf(text: str, syntax: str) -> SchemaText:
    body = text if "message " in text else f"message M {{ {text} }}"
    return SchemaText(SchemaType.PROTOBUF, f'syntax = "{syntax}"; {body}')


def json_cases() -> Iterator[Case]:
    for step in steps("json"):
        draft, _, change = step.partition(": ")
        if draft not in DRAFTS:
            draft, change = "7", step
        sides = change.partition(" with ")[0].split(" => ")
        yield Case(*(json_schema(one, DRAFTS[draft]) for one in sides))


def json_schema(text: str, draft: str) -> SchemaText:
    if text.startswith("{"):
        comma = "," if text != "{}" else ""
        text = f'{{"$schema":"{draft}"{comma}{text[1:]}'
    return SchemaText(SchemaType.JSON, text)


TABLES_BY_NAME = {
    "avro": list(avro_cases()),
    "protobuf": list(protobuf_cases()),
    "json": list(json_cases()),
}


@pytest.mark.parametrize(("name", "cases"), TABLES_BY_NAME.items())
def test_the_gate_finds_what_the_registry_finds(
    name: str, cases: list[Case], api: RegistryApi
) -> None:
    assert len(cases) >= 150
    context = f":.{name}-table:"
    api.set_config(context, {"compatibility": "FULL"})
    differing = []
    for number, case in enumerate(cases):
        subject = f"{context}case-{number}"
        api.register(subject, schema_body(case.old))
        messages = api.compatibility(subject, schema_body(case.new)).get("messages") or []
        changes = checked(api, subject, case.new).breaking_changes
        reasons = [message for message in messages if "errorType" in message]
        if len(reasons) != len(changes) or not all(
            change.kind in reason and change.sentence in reason
            for change, reason in zip(changes, reasons, strict=True)
        ):
            differing.append((subject, messages, changes))
    assert differing == []


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "policy"),
    [(name, Policy.STRICT) for name in TABLES_BY_NAME] + [("json", Policy.LENIENT)],
)
def test_the_gate_allows_what_the_registry_allows_at_every_level(
    name: str, policy: Policy, api: RegistryApi
) -> None:
    context = f":.{name}-{policy.lower()}-levels:"
    api.set_config(context, {"compatibility": "FULL", "compatibilityPolicy": str(policy)})
    passes = {}
    for number, case in enumerate(TABLES_BY_NAME[name]):
        subject = f"{context}case-{number}"
        api.register(subject, schema_body(case.old))
        passes[subject] = checked(api, subject, case.new).passes
    differing = []
    for level in Level:
        api.set_config(context, {"compatibility": str(level)})
        for (subject, allowed), case in zip(passes.items(), TABLES_BY_NAME[name], strict=True):
            response = api.compatibility(subject, schema_body(case.new))
            if (level in allowed) != response["is_compatible"]:
                differing.append((subject, level, allowed))
    assert differing == []


def checked(api: RegistryApi, subject: str, source: SchemaText) -> CheckResult:
    contracts = RegistryContracts(api)
    schema = parse_schema(source, contracts.text, subject)
    return check(contracts, subject, schema, CheckOptions(date(2026, 6, 1), proves=False))
