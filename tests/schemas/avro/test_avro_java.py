"""Random schemas and pairs compared with Avro's Java library: validity, text, differences."""

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from penstock.schemas.avro import parse
from penstock.schemas.model import InvalidSchemaError

SCHEMAS = 1_500


@pytest.mark.interop
@pytest.mark.slow
def test_results_for_random_schemas_and_pairs_are_those_of_java(
    avro_java: Path, make_schemas: Any
) -> None:
    maker = make_schemas(20_260_823)
    inputs: list[list[str]] = []
    for _ in range(SCHEMAS):
        schema = maker.schema()
        old, new = json.dumps(schema), json.dumps(maker.changed(schema))
        inputs += [[old], [old, new], [new, old]]
    results = zip(inputs, java_results(avro_java, inputs), strict=True)
    different = [
        (schemas, theirs)
        for schemas, theirs in results
        if our_result(schemas) != theirs and not is_java_regression(theirs)
    ]
    assert different == []


def our_result(schemas: list[str]) -> str:
    try:
        reader, *writers = [parse(text) for text in schemas]
    except InvalidSchemaError:
        return "invalid"
    if not writers:
        return f"text {reader.canonical}"
    lines = ["differences"]
    for difference in reader.incompatibilities(writers[0]):
        if difference.kind == "UNCHECKABLE":
            return "invalid"
        lines.append(f"{difference.kind} {difference.path} {difference.additional}")
    return "\n".join(lines)


def is_java_regression(theirs: str) -> bool:
    """Java 1.12.1, unlike 1.12.0, does not find an enclosing type that has no namespace."""
    return theirs.startswith("invalid Undefined schema: ")


def java_results(libraries: Path, inputs: list[list[str]]) -> list[str]:
    encoded = [
        " ".join(base64.b64encode(text.encode()).decode() for text in schemas) for schemas in inputs
    ]
    program = Path(__file__).parent / "Results.java"
    done = subprocess.run(
        ["java", "-cp", f"{libraries}/*", str(program)],
        input="\n".join(encoded) + "\n",
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    results = [base64.b64decode(line).decode() for line in done.stdout.split()]
    return [
        "invalid" if one.startswith("invalid") and not is_java_regression(one) else one
        for one in results
    ]
