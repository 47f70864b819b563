"""`penstock schema …`: list, get, register, check, diff, usage, delete, import, export."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.connect import REFUSED, AsJson, fail, show_json, show_table
from penstock.cli.registry_link import (
    LOCAL,
    RegistryLink,
    RegistryRefusedError,
    RegistryUrl,
    reaching,
    schema_body,
)
from penstock.cli.registry_settings import (
    GLOBAL,
    apply_config,
    contexts_of,
    own_mode,
    set_mode,
    settings_of,
)
from penstock.gate.advice import Explanation, explain
from penstock.registry.errors import INVALID_SCHEMA
from penstock.schemas.model import ParsedSchema, Policy
from penstock.schemas.readers import READERS

app = typer.Typer(help="Schemas in the registry: look, register, compare.", no_args_is_help=True)

SubjectName = Annotated[str, typer.Argument(metavar="SUBJECT")]
SchemaFile = Annotated[Path, typer.Argument(metavar="FILE", help="The schema: .avsc .proto .json")]
Language = Annotated[str | None, typer.Option("--type", help="avro, protobuf or json.")]
References = Annotated[
    list[str] | None, typer.Option("--reference", help="name=subject:version; may be repeated.")
]


@app.command("list")
def list_schemas(
    prefix: Annotated[str, typer.Argument(metavar="[PREFIX]")] = "",
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Also what is softly deleted.")
    ] = False,
    registry: RegistryUrl = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Show subjects with their versions and level."""
    rows: list[dict[str, Any]] = []
    with reaching(registry) as link:
        for found in _all_schemas(link, prefix, deleted=deleted):
            if rows and rows[-1]["subject"] == found["subject"]:
                rows[-1]["versions"].append(found["version"])
                rows[-1]["id"] = found["id"]
                continue
            row = {"subject": found["subject"], "type": found.get("schemaType", "AVRO")}
            rows.append({**row, "versions": [found["version"]], "id": found["id"]})
        for row in rows:
            config = link.ask("GET", "config", row["subject"], defaultToGlobal="true")
            row["level"] = config["compatibilityLevel"]
    if as_json:
        show_json(rows)
    elif rows:
        titles = ["SUBJECT", "TYPE", "VERSIONS", "LATEST ID", "LEVEL"]
        show_table(titles, [[_cell(value) for value in row.values()] for row in rows])
    else:
        typer.echo("There are no schemas yet: `penstock schema register SUBJECT FILE` makes one.")


@app.command("get")
def show(
    subject: SubjectName,
    version: Annotated[str, typer.Option("--version", "-v")] = "latest",
    registry: RegistryUrl = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Print a schema; with --json, all that is known of it."""
    with reaching(registry) as link:
        found = link.version(subject, version)
    if as_json:
        show_json(found)
    else:
        typer.echo(_readable(found))


@app.command()
def register(
    subject: SubjectName,
    file: SchemaFile,
    kind: Language = None,
    reference: References = None,
    normalize: Annotated[
        bool, typer.Option("--normalize", help="Put what has no meaning in one order.")
    ] = False,
    registry: RegistryUrl = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Register a schema as the next version of a subject."""
    body = schema_body(file, kind, reference)
    with reaching(registry) as link:
        made = link.ask(
            "POST", "subjects", subject, "versions", body=body, normalize=str(normalize)
        )
        found = link.ask("POST", "subjects", subject, body=body, normalize=str(normalize))
    answer = {"subject": subject, "version": found["version"], "id": made["id"]}
    if as_json:
        show_json(answer)
    else:
        typer.echo(f"{subject} version {answer['version']} has id {answer['id']}")


@app.command()
def check(
    subject: SubjectName,
    file: SchemaFile,
    kind: Language = None,
    reference: References = None,
    registry: RegistryUrl = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Say whether the registry would accept a schema. Exit status 1 if not: made for CI."""
    body = schema_body(file, kind, reference)
    with reaching(registry) as link:
        said = link.ask(
            "POST", "compatibility", "subjects", subject, "versions", body=body, verbose="true"
        )
        level = link.ask("GET", "config", subject, defaultToGlobal="true")["compatibilityLevel"]
        explained = None if said["is_compatible"] else _explained(link, subject, body)
    if as_json:
        show_json({"subject": subject, "level": level, **said})
    elif said["is_compatible"]:
        typer.echo(f"{subject} would accept it ({level})")
    else:
        typer.echo(f"{subject} would refuse it ({level}):")
        for line in explained or said.get("messages", []):
            typer.echo(line)
    if not said["is_compatible"]:
        raise typer.Exit(REFUSED)


def _explained(link: RegistryLink, subject: str, body: dict[str, Any]) -> list[str]:
    """The reasons in plain words, where the schema can be understood at all."""
    try:
        earlier = link.parsed(link.version(subject, "latest"))
        return _changes(explain(link.parsed(body), earlier, _policy(link, subject)))
    except RegistryRefusedError:
        return []


@app.command()
def diff(
    subject: SubjectName,
    old: Annotated[str, typer.Argument(metavar="OLD", help="A version, or `latest`.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="A version, or a file.")],
    kind: Language = None,
    reference: References = None,
    registry: RegistryUrl = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Say in plain words what a change breaks, who must upgrade first, and how to mend it."""
    with reaching(registry) as link:
        earlier = link.parsed(link.version(subject, old))
        proposed = _proposed(link, subject, new, kind, reference)
        explanation = explain(proposed, earlier, _policy(link, subject))
    if as_json:
        show_json(_as_document(subject, old, new, explanation))
        return
    typer.echo(f"{subject}: {old} -> {new}")
    for line in _changes(explanation):
        typer.echo(line)
    typer.echo(f"Allowed by: {', '.join(explanation.allowed)}")
    typer.echo(f"Upgrade first: {explanation.upgrade_first}")
    for one in explanation.lints:
        typer.echo(f"Think twice: {one.path}: {one.message}\n  Instead: {one.remedy}")


def _proposed(
    link: RegistryLink, subject: str, new: str, kind: str | None, reference: list[str] | None
) -> ParsedSchema:
    if new.isdecimal() or new.lower() == "latest":
        return link.parsed(link.version(subject, new))
    return link.parsed(schema_body(Path(new), kind, reference))


def _policy(link: RegistryLink, subject: str) -> Policy:
    config = link.ask("GET", "config", subject, defaultToGlobal="true")
    return Policy.LENIENT if config.get("compatibilityPolicy") == "LENIENT" else Policy.STRICT


def _changes(explanation: Explanation) -> list[str]:
    if not explanation.changes:
        return ["Nothing breaks."]
    lines = []
    for one in explanation.changes:
        lines.append(f"- {one.path}: {one.sentence} [{one.kind}]")
        lines.append(f"    Breaks: {one.breaks}")
        lines.append(f"    Mend:   {one.remedy}")
    return lines


def _as_document(subject: str, old: str, new: str, found: Explanation) -> dict[str, Any]:
    return {
        "subject": subject,
        "old": old,
        "new": new,
        "allowed": [str(level) for level in found.allowed],
        "upgrade_first": found.upgrade_first,
        "changes": [one._asdict() for one in found.changes],
        "lints": [one._asdict() for one in found.lints],
    }


@app.command()
def usage(
    subject: SubjectName,
    quiet_days: Annotated[int, typer.Option(min=0, help="A use counts for so long.")] = 7,
    registry: RegistryUrl = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Show who uses which version, and which may be deleted, or why not."""
    with reaching(registry) as link:
        told = link.ask("GET", "subjects", subject, "usage", quietDays=quiet_days)
    if as_json:
        show_json(told)
        return
    for one in told["versions"]:
        verdict = "may be deleted" if one["safeToDelete"] else "keep it"
        typer.echo(f"{subject} version {one['version']} (id {one['id']}): {verdict}")
        for reason in one["reasons"]:
            typer.echo(f"  {reason}")
    if told["uses"]:
        typer.echo()
        titles = ["CLIENT", "ROLE", "VERSION", "LAST SEEN", "TIMES"]
        show_table(titles, [_use_cells(use) for use in told["uses"]])


def _use_cells(use: dict[str, Any]) -> list[str]:
    last_seen = datetime.fromtimestamp(use["lastSeen"] / 1000, UTC).isoformat(" ", "seconds")
    return [use["client"], use["role"], str(use["version"]), last_seen, str(use["count"])]


@app.command()
def delete(
    subject: SubjectName,
    version: Annotated[str | None, typer.Option("--version", "-v", help="Only this one.")] = None,
    permanent: Annotated[
        bool, typer.Option("--permanent", help="For good, once it is softly deleted.")
    ] = False,
    registry: RegistryUrl = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Delete a subject or one of its versions. It stays readable by id unless --permanent."""
    place = ["subjects", subject] + ([] if version is None else ["versions", version])
    with reaching(registry) as link:
        gone = link.ask("DELETE", *place, permanent=str(permanent))
    numbers = gone if isinstance(gone, list) else [gone]
    if as_json:
        show_json({"subject": subject, "deleted": numbers, "permanent": permanent})
    else:
        how = "for good" if permanent else "softly; --permanent removes for good"
        typer.echo(f"deleted {subject} {', '.join(map(str, numbers))} ({how})")


@app.command("export")
def write_out(
    file: Annotated[Path | None, typer.Argument(help="[default: standard output]")] = None,
    prefix: Annotated[str, typer.Option(help="Only subjects that begin so.")] = "",
    registry: RegistryUrl = LOCAL,
) -> None:
    """Write schemas and settings as one JSON object per line, with ids, to be imported.

    Settings are levels, policies and modes; those of the registry itself only without --prefix.
    """
    with reaching(registry) as link:
        found = sorted(_with_readers(link, prefix), key=lambda one: int(one["id"]))
        subjects = sorted({one["subject"] for one in found})
        scopes = [*contexts_of(subjects), *subjects]
        settings = list(settings_of(link, scopes if prefix else [GLOBAL, *scopes]))
    lines = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in (*found, *settings))
    if file is None:
        sys.stdout.write(lines)
        return
    file.write_text(lines)
    typer.echo(f"wrote {len(found)} versions and {len(settings)} settings to {file}", err=True)


@app.command("import")
def read_in(
    file: Annotated[Path, typer.Argument(help="What `penstock schema export` wrote.")],
    with_global: Annotated[
        bool, typer.Option("--with-global", help="Set the registry's own settings in any case.")
    ] = False,
    registry: RegistryUrl = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Bring schemas in with the ids, versions and settings they had elsewhere.

    Settings of the registry itself are only set if it has no subjects yet, or on request.
    """
    try:
        documents = [json.loads(line) for line in file.read_text().splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        fail(f"{file} cannot be read: {error}")
    versions = [one for one in documents if "settings" not in one]
    settings = {one["settings"]: one for one in documents if "settings" in one}
    subjects = sorted({one["subject"] for one in versions})
    with reaching(registry) as link:
        is_new = not link.ask("GET", "subjects", subjectPrefix=":*:", limit=1)
        left_out = settings.pop(GLOBAL, None) if not (is_new or with_global) else None
        _move_in(link, versions, subjects, settings)
    if as_json:
        show_json({"subjects": len(subjects), "versions": len(versions), "settings": len(settings)})
    else:
        typer.echo(f"imported {len(versions)} versions of {len(subjects)} subjects")
    if left_out is not None:
        typer.echo(
            "the settings of the registry itself were left as they are, because it has other "
            "subjects; --with-global sets them too",
            err=True,
        )


def _move_in(
    link: RegistryLink,
    versions: list[dict[str, Any]],
    subjects: list[str],
    settings: dict[str, dict[str, Any]],
) -> None:
    """Versions under the mode IMPORT, then settings; modes last, as one may forbid the rest."""
    modes = {subject: own_mode(link, subject) for subject in subjects}
    modes |= {scope: one["mode"] for scope, one in settings.items() if "mode" in one}
    try:
        for subject in subjects:
            set_mode(link, subject, "IMPORT")
        _bring_in(link, sorted(versions, key=lambda one: int(one["id"])))
        for one in settings.values():
            apply_config(link, one)
    finally:
        for scope, mode in modes.items():
            set_mode(link, scope, mode)


def _bring_in(link: RegistryLink, documents: list[dict[str, Any]]) -> None:
    """All of them, those that build on others after those."""
    while documents:
        postponed = []
        for one in documents:
            try:
                link.ask("POST", "subjects", one["subject"], "versions", body=_importable(one))
            except RegistryRefusedError as refusal:
                if refusal.code != INVALID_SCHEMA or not one.get("references"):
                    raise
                postponed.append(one)
                reason = refusal
        if len(postponed) == len(documents):
            raise reason
        documents = postponed


def _importable(document: dict[str, Any]) -> dict[str, Any]:
    kept = ("id", "version", "schema", "schemaType", "references", "metadata", "ruleSet")
    return {name: document[name] for name in kept if name in document}


def _with_readers(link: RegistryLink, prefix: str) -> list[dict[str, Any]]:
    """All versions, and those of registered readers, which are not listed among the others."""
    found = _all_schemas(link, prefix, deleted=False)
    if not prefix.startswith(":"):
        found += _all_schemas(link, f"{READERS}{prefix}", deleted=False)
    return list({(one["subject"], one["version"]): one for one in found}.values())


def _all_schemas(link: RegistryLink, prefix: str, *, deleted: bool) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    place = prefix if prefix.startswith(":") else f":*:{prefix}"
    while True:
        page = link.ask(
            "GET", "schemas", subjectPrefix=place, deleted=str(deleted), offset=len(found)
        )
        if not page:
            return found
        found += page


def _readable(found: dict[str, Any]) -> str:
    text = str(found["schema"])
    if found.get("schemaType") == "PROTOBUF":
        return text.rstrip()
    return json.dumps(json.loads(text), indent=2, ensure_ascii=False)


def _cell(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
