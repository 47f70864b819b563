"""`penstock schema …`: list, get, register, check, diff, usage, delete, import, export."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from penstock.cli.error_output import REFUSED
from penstock.cli.options import LOCAL_REGISTRY, AsJson, RegistryUrl
from penstock.cli.output import cell, show_json, show_table
from penstock.cli.registry_connect import open_registry, read_schema_file
from penstock.cli.schema_transfer import export_schemas, import_schemas
from penstock.client.registry_api import RegistryApi
from penstock.client.registry_documents import Document, read_source, schema_body
from penstock.gate.advice import upgrade_advice
from penstock.gate.check import check_pair
from penstock.gate.results import BreakingChange, CheckResult
from penstock.schemas.model import ParsedSchema, Policy, SchemaText
from penstock.serde.errors import RegistryRefusedError

app: Final = typer.Typer(help="List, register and compare schemas.", no_args_is_help=True)

SubjectName = Annotated[str, typer.Argument(metavar="SUBJECT", help="Such as orders-value.")]
SchemaFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="The schema: .avsc, .proto or .json.")
]
Language = Annotated[
    str | None, typer.Option("--type", help="avro, protobuf or json, if the suffix is another.")
]
References = Annotated[
    list[str] | None,
    typer.Option("--reference", help="NAME=SUBJECT:VERSION; may be repeated."),
]


@app.command("list")
def list_schemas(
    prefix: Annotated[
        str, typer.Argument(metavar="[PREFIX]", help="Only subjects with this prefix.")
    ] = "",
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Include soft-deleted versions.")
    ] = False,
    registry: RegistryUrl = LOCAL_REGISTRY,
    as_json: AsJson = False,
) -> None:
    """List subjects with their versions and compatibility level."""
    rows: list[dict[str, Any]] = []
    with open_registry(registry) as api:
        for version in api.schemas(prefix, deleted=deleted):
            if rows and rows[-1]["subject"] == version["subject"]:
                rows[-1]["versions"].append(version["version"])
                rows[-1]["id"] = version["id"]
                continue
            row = {"subject": version["subject"], "type": version.get("schemaType", "AVRO")}
            rows.append({**row, "versions": [version["version"]], "id": version["id"]})
        for row in rows:
            row["level"] = api.config(row["subject"])["compatibilityLevel"]
    if as_json:
        show_json(rows)
    elif rows:
        titles = ["SUBJECT", "TYPE", "VERSIONS", "LATEST ID", "LEVEL"]
        show_table(titles, [[cell(value) for value in row.values()] for row in rows])
    else:
        typer.echo("No schemas. Register one with `penstock schema register SUBJECT FILE`.")


@app.command("get")
def show(
    subject: SubjectName,
    version: Annotated[
        str, typer.Option("--version", "-v", help="A version number, or latest.")
    ] = "latest",
    registry: RegistryUrl = LOCAL_REGISTRY,
    as_json: AsJson = False,
) -> None:
    """Print a schema; with --json, with its id, version and metadata."""
    with open_registry(registry) as api:
        document = api.version(subject, version)
    if as_json:
        show_json(document)
    else:
        typer.echo(_readable(document))


@app.command()
def register(
    subject: SubjectName,
    file: SchemaFile,
    language: Language = None,
    reference: References = None,
    normalize: Annotated[
        bool, typer.Option("--normalize", help="Register the normalized form of the schema.")
    ] = False,
    registry: RegistryUrl = LOCAL_REGISTRY,
    as_json: AsJson = False,
) -> None:
    """Register a schema as the next version of a subject."""
    body = schema_body(read_schema_file(file, language, reference))
    with open_registry(registry) as api:
        registered = api.register(subject, body, normalize=normalize)
        version = api.look_up(subject, body, normalize=normalize)["version"]
    if as_json:
        show_json({"subject": subject, "version": version, "id": registered["id"]})
    else:
        typer.echo(f"{subject} version {version} has id {registered['id']}")


@app.command()
def check(
    subject: SubjectName,
    file: SchemaFile,
    language: Language = None,
    reference: References = None,
    registry: RegistryUrl = LOCAL_REGISTRY,
    as_json: AsJson = False,
) -> None:
    """Check whether the registry would accept a schema. Exit status 1 if not: made for CI."""
    source = read_schema_file(file, language, reference)
    with open_registry(registry) as api:
        response = api.compatibility(subject, schema_body(source))
        level = api.config(subject)["compatibilityLevel"]
        is_compatible = response["is_compatible"]
        explained = [] if is_compatible else _explained(api, subject, source)
    if as_json:
        show_json({"subject": subject, "level": level, **response})
    elif is_compatible:
        typer.echo(f"{subject} would accept it ({level})")
    else:
        typer.echo(f"{subject} would refuse it ({level}):")
        for line in explained or response.get("messages", []):
            typer.echo(line)
    if not is_compatible:
        raise typer.Exit(REFUSED)


def _explained(api: RegistryApi, subject: str, proposed: SchemaText) -> list[str]:
    """The reasons in plain words, where the schema can be parsed at all."""
    try:
        earlier = _parsed(api, api.version(subject, "latest"))
        return _changes(check_pair(earlier, api.parse(proposed), _policy(api, subject)))
    except RegistryRefusedError:
        return []


@app.command()
def diff(
    subject: SubjectName,
    old: Annotated[str, typer.Argument(metavar="OLD", help="A version number, or latest.")],
    new: Annotated[
        str, typer.Argument(metavar="NEW", help="A version number, latest, or a schema file.")
    ],
    language: Language = None,
    reference: References = None,
    registry: RegistryUrl = LOCAL_REGISTRY,
    as_json: AsJson = False,
) -> None:
    """Explain what a change breaks, who must upgrade first, and how to fix it."""
    with open_registry(registry) as api:
        earlier = _parsed(api, api.version(subject, old))
        if new.isdecimal() or new.lower() == "latest":
            proposed = _parsed(api, api.version(subject, new))
        else:
            proposed = api.parse(read_schema_file(Path(new), language, reference))
        result = check_pair(earlier, proposed, _policy(api, subject))
    if as_json:
        show_json(_as_document(subject, old, new, result))
        return
    typer.echo(f"{subject}: {old} -> {new}")
    for line in _changes(result):
        typer.echo(line)
    typer.echo(f"Allowed by: {', '.join(_levels(result))}")
    typer.echo(f"Upgrade first: {upgrade_advice(result.safe_order)}")
    for lint in result.lints:
        typer.echo(f"Warning: {lint.path}: {lint.message}\n  Instead: {lint.remedy}")


def _parsed(api: RegistryApi, document: Document) -> ParsedSchema:
    return api.parse(read_source(document))


def _policy(api: RegistryApi, subject: str) -> Policy:
    policy = api.config(subject).get("compatibilityPolicy")
    return Policy.LENIENT if policy == "LENIENT" else Policy.STRICT


def _levels(result: CheckResult) -> list[str]:
    """The levels that allow the change; two versions say nothing about transitive ones."""
    return [str(level) for level in result.passes if not level.is_transitive]


def _changes(result: CheckResult) -> list[str]:
    if not result.breaking_changes:
        return ["Nothing breaks."]
    lines = []
    for change in result.breaking_changes:
        lines.append(f"- {change.path}: {change.sentence} [{change.kind}]")
        lines.append(f"    Breaks: {_broken(change)}")
        lines.append(f"    Fix:    {change.remedy}")
    return lines


def _broken(change: BreakingChange) -> str:
    if change.new_is_reader:
        return "consumers with the new schema cannot read existing events"
    return "consumers with the old schema cannot read new events"


def _as_document(subject: str, old: str, new: str, result: CheckResult) -> Document:
    return {
        "subject": subject,
        "old": old,
        "new": new,
        "allowed": _levels(result),
        "upgrade_first": upgrade_advice(result.safe_order),
        "changes": [
            {
                "path": change.path,
                "kind": change.kind,
                "sentence": change.sentence,
                "breaks": _broken(change),
                "remedy": change.remedy,
            }
            for change in result.breaking_changes
        ],
        "lints": [lint._asdict() for lint in result.lints],
    }


@app.command()
def usage(
    subject: SubjectName,
    quiet_days: Annotated[
        int, typer.Option(min=0, help="Ignore clients that were last seen before this many days.")
    ] = 7,
    registry: RegistryUrl = LOCAL_REGISTRY,
    as_json: AsJson = False,
) -> None:
    """Show which clients use which version, and which versions can be deleted."""
    with open_registry(registry) as api:
        report = api.usage(subject, quiet_days)
    if as_json:
        show_json(report)
        return
    for version in report["versions"]:
        advice = "can be deleted" if version["safeToDelete"] else "in use: keep it"
        typer.echo(f"{subject} version {version['version']} (id {version['id']}): {advice}")
        for reason in version["reasons"]:
            typer.echo(f"  {reason}")
    if report["uses"]:
        typer.echo()
        titles = ["CLIENT", "ROLE", "VERSION", "LAST SEEN", "TIMES"]
        show_table(titles, [_use_cells(use) for use in report["uses"]])


def _use_cells(use: Document) -> list[str]:
    last_seen = datetime.fromtimestamp(use["lastSeen"] / 1000, UTC).isoformat(" ", "seconds")
    return [use["client"], use["role"], str(use["version"]), last_seen, str(use["count"])]


@app.command()
def delete(
    subject: SubjectName,
    version: Annotated[
        str | None, typer.Option("--version", "-v", help="Only this version.")
    ] = None,
    permanent: Annotated[
        bool, typer.Option("--permanent", help="Remove what was soft-deleted, permanently.")
    ] = False,
    registry: RegistryUrl = LOCAL_REGISTRY,
    as_json: AsJson = False,
) -> None:
    """Delete a subject or one of its versions. It stays readable by id unless --permanent."""
    with open_registry(registry) as api:
        numbers = api.delete(subject, version, permanent=permanent)
    if as_json:
        show_json({"subject": subject, "deleted": numbers, "permanent": permanent})
    else:
        how = "permanently" if permanent else "soft; --permanent removes it"
        typer.echo(f"deleted {subject} {', '.join(map(str, numbers))} ({how})")


app.command("export")(export_schemas)
app.command("import")(import_schemas)


def _readable(document: Document) -> str:
    text = str(document["schema"])
    if document.get("schemaType") == "PROTOBUF":
        return text.rstrip()
    return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
