"""Checks the files that a person proposes: one schema file, or a folder of contracts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from penstock.gate.advice import remedy_for
from penstock.gate.check import CheckOptions, check
from penstock.gate.contracts import (
    CannotCheckError,
    CompatibilitySettings,
    ContractStore,
    ContractVersion,
    GivenContracts,
    parse_schema,
)
from penstock.gate.folder import ContractFolder, read_text
from penstock.gate.results import BreakingChange, CheckResult, CheckStatus, unchecked
from penstock.schemas.compatibility import Level
from penstock.schemas.model import ParsedSchema, Reference, SchemaText
from penstock.schemas.readers import Reader
from penstock.serde.errors import ClientError
from penstock.serde.language import SUFFIX_LIST, SUFFIXES


class ProposedSchema(NamedTuple):
    """A schema file to be registered under a subject."""

    subject: str
    source: SchemaText
    schema: ParsedSchema
    path: str


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """What to check, and against what."""

    proposed: Path
    subject: str | None = None
    base: ContractStore | None = None  # None: the earlier versions in the folder itself
    level: Level | None = None  # None: the level of the subject
    references: tuple[Reference, ...] = ()  # none: those of the latest version


def check_proposed(request: CheckRequest, options: CheckOptions) -> list[CheckResult]:
    """One result per subject, including subjects that could not be checked."""
    if request.proposed.is_dir():
        return _check_folder(request, ContractFolder(request.proposed), options)
    try:
        return [_check_file(request, options)]
    except ClientError as error:
        return [unchecked(request.subject or "", str(error), str(request.proposed))]


def read_proposal(request: CheckRequest) -> ProposedSchema:
    """The proposed file, parsed."""
    subject, base, _ = _target(request)
    return _read_proposal(request, subject, base, base.versions(subject))


def _check_file(request: CheckRequest, options: CheckOptions) -> CheckResult:
    subject, base, number = _target(request)
    versions = [
        version for version in base.versions(subject) if number is None or version.number < number
    ]
    proposal = _read_proposal(request, subject, base, versions)
    settings = _with_level(request, base.settings(subject))
    history = GivenContracts(versions, settings, base.readers(subject))
    return replace(check(history, subject, proposal.schema, options), file=proposal.path)


def _target(request: CheckRequest) -> tuple[str, ContractStore, int | None]:
    """The subject, its store, and the version if the file is one of the store.

    A file in a folder of contracts identifies all of them by its path.
    """
    path, subject, base = request.proposed, request.subject, request.base
    if subject is not None and base is not None:
        return subject, base, None
    folder = ContractFolder(path.resolve().parent.parent)
    identified = folder.identify(path)
    if identified is None:
        raise CannotCheckError(
            f"{path}: pass --subject, and --registry URL or --contracts FOLDER to compare with"
        )
    return subject or identified[0], base or folder, identified[1] if base is None else None


def _read_proposal(
    request: CheckRequest, subject: str, base: ContractStore, versions: Sequence[ContractVersion]
) -> ProposedSchema:
    path = request.proposed
    language = SUFFIXES.get(path.suffix)
    if language is None:
        raise CannotCheckError(f"{path}: unknown suffix; use {SUFFIX_LIST}")
    latest = versions[-1].source.references if versions else ()
    source = SchemaText(language, read_text(path), request.references or latest)
    schema = parse_schema(source, base.text, str(path))
    return ProposedSchema(subject, source, schema, str(path))


def _check_folder(
    request: CheckRequest, folder: ContractFolder, options: CheckOptions
) -> list[CheckResult]:
    subjects = folder.subjects() if request.subject is None else [request.subject]
    if not subjects:
        raise CannotCheckError(
            f"{folder.title} contains no contracts: make a folder for each subject, with v1.avsc, "
            "v1.proto or v1.json in it"
        )
    return [_check_subject(request, folder, subject, options) for subject in subjects]


def _check_subject(
    request: CheckRequest, folder: ContractFolder, subject: str, options: CheckOptions
) -> CheckResult:
    base = request.base
    try:
        own = folder.versions(subject)
        if not own:
            raise CannotCheckError(f"{folder.title} contains no version of {subject}")
        earlier = own[:-1] if base is None else base.versions(subject)
        rewrite = None if base is None else _find_rewrite(own, earlier, base)
        if rewrite is not None:
            return rewritten(subject, *rewrite)
        settings = folder.own_settings(subject) or (base or folder).settings(subject)
        history = GivenContracts(
            earlier, _with_level(request, settings), _all_readers(folder, base, subject)
        )
        return replace(check(history, subject, own[-1].schema, options), file=own[-1].path)
    except ClientError as error:
        return unchecked(subject, str(error), "" if base else str(folder.folder))


class Rewrite(NamedTuple):
    """A published version that was edited."""

    version: ContractVersion
    published: ContractVersion
    next_number: int  # for the change


def rewritten(
    subject: str, version: ContractVersion, published: ContractVersion, next_number: int
) -> CheckResult:
    """The result for a published version that was edited: events were written with it."""
    kind = "VERSION_REWRITTEN"
    change = BreakingChange(
        kind,
        version.path,
        f"version {version.number} was published and has been edited. Restore it, and write the "
        f"change as v{next_number}",
        published.schema.canonical,
        version.schema.canonical,
        new_is_reader=True,
        remedy=remedy_for(kind, new_is_reader=True),
    )
    return CheckResult(
        subject,
        CheckStatus.BREAKING,
        file=version.path,
        against=version.number,
        breaking_changes=(change,),
    )


def _find_rewrite(
    own: Sequence[ContractVersion], published: Sequence[ContractVersion], base: ContractStore
) -> Rewrite | None:
    """The first version that differs from its published form.

    Two folders have the same numbers of versions and references. A registry may have other
    numbers: a schema that is registered under any number was not edited.
    """
    by_number = {version.number: version for version in published}
    common = [version for version in own if version.number in by_number]
    if isinstance(base, ContractFolder):
        edited = [version for version in common if not _is_same(version, by_number[version.number])]
    else:
        texts = {version.schema.canonical for version in published}
        own_texts = {version.schema.canonical for version in own}
        edited = [
            version
            for version in common
            if version.schema.canonical not in texts
            and by_number[version.number].schema.canonical not in own_texts
        ]
    if not edited:
        return None
    next_number = max(own[-1].number, published[-1].number) + 1
    return Rewrite(edited[0], by_number[edited[0].number], next_number)


def _is_same(version: ContractVersion, other: ContractVersion) -> bool:
    return (version.schema.canonical, version.source.references) == (
        other.schema.canonical,
        other.source.references,
    )


def _all_readers(folder: ContractFolder, base: ContractStore | None, subject: str) -> list[Reader]:
    """The readers of both stores; the folder's declaration counts if both have one."""
    readers = {reader.name: reader for reader in ([] if base is None else base.readers(subject))}
    readers |= {reader.name: reader for reader in folder.readers(subject)}
    return list(readers.values())


def _with_level(request: CheckRequest, settings: CompatibilitySettings) -> CompatibilitySettings:
    return settings if request.level is None else settings._replace(level=request.level)
