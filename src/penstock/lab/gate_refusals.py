"""Known-breaking schemas through `penstock contract check` and through the registry.

Both answers also show schemas, which name every field: only the descriptions of what is wrong count
as naming the field.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from penstock.client.registry import Registry
from penstock.lab.lab_result import LabResult
from penstock.lab.lab_run import LabRun
from penstock.lab.order_schemas import CHANGES, LANGUAGE_WRITERS, schema_text
from penstock.schemas.model import SchemaType
from penstock.serde.errors import RegistryRefusedError

_QUESTION: Final = "Do the gate and the registry refuse breaking changes, and name the field?"
_SUFFIXES: Final = {SchemaType.AVRO: "avsc", SchemaType.PROTOBUF: "proto", SchemaType.JSON: "json"}
# Change, level at which it breaks, and the words or paths that name the field; by language.
_BREAKING: Final = (
    (SchemaType.AVRO, "add a required field", "BACKWARD", ("channel",)),
    (SchemaType.AVRO, "remove a required field", "FORWARD", ("street",)),
    (SchemaType.AVRO, "rename a field", "BACKWARD", ("contact",)),
    (SchemaType.AVRO, "int to string", "BACKWARD", ("'quantity'", "/fields/6/type")),
    (SchemaType.PROTOBUF, "int to string", "BACKWARD", ("'quantity'", "'#/Order/7'")),
    (SchemaType.JSON, "add a required field", "BACKWARD", ("channel",)),
    (SchemaType.JSON, "remove a required field", "FORWARD", ("street",)),
    (SchemaType.JSON, "int to string", "BACKWARD", ("quantity",)),
)


def run_gate(lab: LabRun) -> LabResult:
    """Propose every breaking change to both."""
    cases = _BREAKING[:: lab.sized(quick=4, default=1)]
    result = lab.result(_QUESTION, cases=len(cases))
    rows = []
    with lab.platform.registry() as registry:
        for language, change, level, words in lab.steps("changes", cases):
            subject = f"gate-{language}-{change}-value".replace(" ", "-")
            registry.api.set_config(subject, {"compatibility": level})
            registry.register(subject, schema_text(CHANGES[change][0], language))
            reason = _register(registry, subject, language, change)
            status, report = _check(lab, subject, language, change)
            named = [
                any(word in text for word in words)
                for text in (registry_descriptions(reason), gate_descriptions(report))
            ]
            where = f"{language}, {change}"
            measured = f"the registry: {_short(reason)}; the gate: exit status {status}"
            result.claim(
                f"{where}: both refuse and name the field",
                measured, bool(reason) and status == 1 and all(named),
            )  # fmt: skip
            rows.append((language, change, level, _short(reason), status))
    columns = ("language", "change", "level", "the registry's reason", "exit status of the gate")
    result.table("Refusals", columns, rows)
    result.numbers["refused"] = sum(claim.holds for claim in result.claims)
    return result


def _register(registry: Registry, subject: str, language: SchemaType, change: str) -> str:
    try:
        registry.register(subject, schema_text(CHANGES[change][-1], language))
    except RegistryRefusedError as refusal:
        return refusal.message
    return ""


def _check(lab: LabRun, subject: str, language: SchemaType, change: str) -> tuple[int, str]:
    """The exit status and the report of the command."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"order.{_SUFFIXES[language]}"
        path.write_text(LANGUAGE_WRITERS[language](CHANGES[change][-1]), encoding="utf-8")
        command = [
            sys.executable, "-m", "penstock", "contract", "check", "--proposed", str(path),
            "--subject", subject, "--registry", lab.platform.registry_url, "--format", "json",
            "--seed", str(lab.seed),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def registry_descriptions(message: str) -> str:
    """What a refusal says is wrong, without the schemas that it shows."""
    found = re.findall(r"description:(['\"])(.*?)(?:, additionalInfo:|\1\})", message, re.DOTALL)
    return "\n".join(description for _, description in found)


def gate_descriptions(report: str) -> str:
    """What a report in JSON says is wrong, without the schemas and events that it shows."""
    try:
        results = json.loads(report)["results"]
    except ValueError:
        return ""
    return "\n".join(
        f"{change['path']!r} {change['message']}" for one in results for change in one["findings"]
    )


def _short(reason: str) -> str:
    start = reason.find("details: [")
    return " ".join(reason[start + 10 :].split())[:140] if start >= 0 else reason[:140]
