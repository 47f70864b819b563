"""Random schemas and pairs beside Avro's Java library: what is valid, its text, what differs."""

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
def test_random_schemas_and_pairs_are_judged_as_java_does(
    avro_java: Path, make_schemas: Any
) -> None:
    maker = make_schemas(20_260_823)
    questions: list[list[str]] = []
    for _ in range(SCHEMAS):
        schema = maker.schema()
        old, new = json.dumps(schema), json.dumps(maker.changed(schema))
        questions += [[old], [old, new], [new, old]]
    answers = zip(questions, java_answers(avro_java, questions), strict=True)
    unlike = [
        (question, theirs)
        for question, theirs in answers
        if our_answer(question) != theirs and not is_forgotten_name(theirs)
    ]
    assert unlike == []


def our_answer(question: list[str]) -> str:
    try:
        reader, *writers = [parse(text) for text in question]
    except InvalidSchemaError:
        return "wrong"
    if not writers:
        return f"text {reader.canonical}"
    lines = ["differences"]
    for difference in reader.incompatibilities(writers[0]):
        if difference.kind == "UNCHECKABLE":
            return "wrong"
        lines.append(f"{difference.kind} {difference.path} {difference.additional}")
    return "\n".join(lines)


def is_forgotten_name(theirs: str) -> bool:
    """Java 1.12.1, unlike 1.12.0, does not find an enclosing type that has no namespace."""
    return theirs.startswith("wrong Undefined schema: ")


def java_answers(libraries: Path, questions: list[list[str]]) -> list[str]:
    encoded = [
        " ".join(base64.b64encode(text.encode()).decode() for text in question)
        for question in questions
    ]
    program = Path(__file__).parent / "Truth.java"
    done = subprocess.run(
        ["java", "-cp", f"{libraries}/*", str(program)],
        input="\n".join(encoded) + "\n",
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    answers = [base64.b64decode(line).decode() for line in done.stdout.split()]
    return [
        "wrong" if one.startswith("wrong") and not is_forgotten_name(one) else one
        for one in answers
    ]
