"""`penstock schema export` and `import`: versions with their ids, and settings, as JSON lines.

A line is a version as the registry serves it, or the settings of a scope: {"settings": scope,
"config": {...}, "mode": "..."} with what the scope itself has set. The scope is a subject, a
context (`:.name:`), or "" for the registry.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from penstock.cli.error_output import fail
from penstock.cli.options import LOCAL_REGISTRY, AsJson, RegistryUrl
from penstock.cli.output import counted, show_json
from penstock.cli.registry_connect import open_registry
from penstock.client.registry_api import RegistryApi
from penstock.client.registry_documents import INVALID_SCHEMA, Document
from penstock.schemas.readers import READERS
from penstock.serde.errors import RegistryRefusedError

WHOLE_REGISTRY: Final = ""
_READ_AS, _WRITTEN_AS = "compatibilityLevel", "compatibility"  # one setting, two names in the API
_IMPORTED: Final[tuple[str, ...]] = (
    "id", "version", "schema", "schemaType", "references", "metadata", "ruleSet",
)  # fmt: skip


def export_schemas(
    file: Annotated[Path | None, typer.Argument(help="[default: standard output]")] = None,
    prefix: Annotated[str, typer.Option(help="Only subjects with this prefix.")] = "",
    registry: RegistryUrl = LOCAL_REGISTRY,
) -> None:
    """Write schemas and settings as JSON lines, with ids, for `penstock schema import`.

    Settings are levels, policies and modes; those of the registry itself only without --prefix.
    """
    with open_registry(registry) as api:
        versions = sorted(
            _versions_and_readers(api, prefix), key=lambda version: int(version["id"])
        )
        subjects = sorted({version["subject"] for version in versions})
        scopes = [*_contexts_of(subjects), *subjects]
        settings = list(_settings_of(api, scopes if prefix else [WHOLE_REGISTRY, *scopes]))
    lines = "".join(
        json.dumps(document, ensure_ascii=False) + "\n" for document in (*versions, *settings)
    )
    if file is None:
        sys.stdout.write(lines)
        return
    file.write_text(lines, encoding="utf-8")
    written = f"{counted(len(versions), 'version')} and {counted(len(settings), 'setting')}"
    typer.echo(f"wrote {written} to {file}", err=True)


def import_schemas(
    file: Annotated[Path, typer.Argument(help="A file written by `penstock schema export`.")],
    with_global: Annotated[
        bool, typer.Option("--with-global", help="Set the registry's own settings in any case.")
    ] = False,
    registry: RegistryUrl = LOCAL_REGISTRY,
    as_json: AsJson = False,
) -> None:
    """Import schemas with the ids, versions and settings that they had.

    Settings of the registry itself are set only if it has no subjects yet, or with --with-global.
    """
    documents = _read_lines(file)
    versions = [document for document in documents if "settings" not in document]
    settings = {document["settings"]: document for document in documents if "settings" in document}
    subjects = sorted({version["subject"] for version in versions})
    with open_registry(registry) as api:
        sets_global = with_global or not api.has_subjects()
        skipped = None if sets_global else settings.pop(WHOLE_REGISTRY, None)
        _import(api, versions, subjects, settings)
    if as_json:
        show_json({"subjects": len(subjects), "versions": len(versions), "settings": len(settings)})
    else:
        typer.echo(
            f"imported {counted(len(versions), 'version')} of {counted(len(subjects), 'subject')}"
        )
    if skipped is not None:
        typer.echo(
            "did not change the settings of the registry itself, because it has other subjects; "
            "--with-global sets them too",
            err=True,
        )


def _read_lines(file: Path) -> list[Document]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line.strip()]
    except (OSError, ValueError) as error:
        fail(f"cannot read {file}: {error}")


def _versions_and_readers(api: RegistryApi, prefix: str) -> list[Document]:
    """All versions, and those of declared readers, which are not listed among the others."""
    versions = api.schemas(prefix)
    if not prefix.startswith(":"):
        versions += api.schemas(f"{READERS}{prefix}")
    return list(
        {(version["subject"], version["version"]): version for version in versions}.values()
    )


def _contexts_of(subjects: Iterable[str]) -> list[str]:
    """The contexts of subjects, without the default one."""
    names = {subject.split(":")[1] for subject in subjects if subject.startswith(":")}
    return [f":{name}:" for name in sorted(names - {".", ""})]


def _settings_of(api: RegistryApi, scopes: Iterable[str]) -> Iterator[Document]:
    """The settings of those scopes that have their own."""
    for scope in scopes:
        own = {"config": api.own_config(scope), "mode": api.own_mode(scope)}
        settings = {name: value for name, value in own.items() if value}
        if settings:
            yield {"settings": scope, **settings}


def _import(
    api: RegistryApi,
    versions: list[Document],
    subjects: list[str],
    settings: dict[str, Document],
) -> None:
    """Versions under the mode IMPORT, then settings; modes last, as one may forbid the rest."""
    modes = {subject: api.own_mode(subject) for subject in subjects}
    modes |= {scope: setting["mode"] for scope, setting in settings.items() if "mode" in setting}
    try:
        for subject in subjects:
            api.set_mode(subject, "IMPORT")
        _import_versions(api, sorted(versions, key=lambda version: int(version["id"])))
        for scope, setting in settings.items():
            if config := setting.get("config"):
                api.set_config(scope, _writable(config))
    finally:
        for scope, mode in modes.items():
            api.set_mode(scope, mode)


def _import_versions(api: RegistryApi, versions: list[Document]) -> None:
    """All of them; a version comes after those that it refers to."""
    while versions:
        postponed = []
        for version in versions:
            body = {name: version[name] for name in _IMPORTED if name in version}
            try:
                api.register(version["subject"], body)
            except RegistryRefusedError as refusal:
                if refusal.code != INVALID_SCHEMA or not version.get("references"):
                    raise
                postponed.append(version)
                reason = refusal
        if len(postponed) == len(versions):
            raise reason
        versions = postponed


def _writable(config: Document) -> dict[str, Any]:
    return {_WRITTEN_AS if name == _READ_AS else name: value for name, value in config.items()}
