"""What is proposed: one file for a subject, or a folder of contracts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.gate.check import (
    BreakingChange,
    CheckResult,
    CheckStatus,
    Gate,
    ProposedSchema,
    rewritten,
    unchecked,
)
from penstock.gate.contracts import (
    CannotCheckError,
    CompatibilitySettings,
    ContractStore,
    ContractVersion,
    parse_schema,
)
from penstock.gate.folder import ContractFolder, read_text
from penstock.schemas.compatibility import Level
from penstock.schemas.model import Reference, SchemaText
from penstock.schemas.readers import Reader
from penstock.serde.contract import SUFFIXES
from penstock.serde.errors import ClientError


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """What a person wants to know."""

    proposed: Path
    subject: str | None = None
    base: ContractStore | None = None  # None: the folder's own earlier versions
    level: Level | None = None  # instead of the subject's own
    references: tuple[Reference, ...] = ()


def check_proposed(question: CheckRequest, gate: Gate) -> list[CheckResult]:
    """One result per subject. What cannot be checked is a result too."""
    if question.proposed.is_dir():
        return _answer_folder(question, ContractFolder(question.proposed), gate)
    subject = question.subject or ""
    try:
        return [_answer_file(question, gate)]
    except ClientError as wrong:
        return [unchecked(subject, str(wrong), str(question.proposed))]


def read_proposal(question: CheckRequest) -> ProposedSchema:
    """The one file that is proposed, understood."""
    subject, base = question.subject, question.base
    if subject is None or base is None:
        subject, base, _ = _placed(question.proposed, subject, base)
    return _read_proposal(question, subject, base, base.versions(subject))


def _answer_file(question: CheckRequest, gate: Gate) -> CheckResult:
    path = question.proposed
    subject, base = question.subject, question.base
    if subject is None or base is None:
        subject, base, number = _placed(path, subject, base)
    else:
        number = None
    versions = [one for one in base.versions(subject) if number is None or one.number < number]
    proposal = _read_proposal(question, subject, base, versions)
    return gate.check(proposal, versions, _terms(question, base, subject), base.readers(subject))


def _placed(
    path: Path, subject: str | None, base: ContractStore | None
) -> tuple[str, ContractStore, int | None]:
    """A file in a folder of contracts says by its place what it is."""
    shelf = ContractFolder(path.resolve().parent.parent)
    place = shelf.placed(path)
    if place is not None:
        return subject or place[0], base or shelf, place[1] if base is None else None
    raise CannotCheckError(
        f"{path}: say which --subject it is for, and what to compare it with: --registry URL, or "
        "--contracts FOLDER"
    )


def _read_proposal(
    question: CheckRequest, subject: str, base: ContractStore, versions: Sequence[ContractVersion]
) -> ProposedSchema:
    path = question.proposed
    kind = SUFFIXES.get(path.suffix)
    if kind is None:
        raise CannotCheckError(
            f"{path}: name it .avsc (Avro), .proto (Protobuf) or .json (JSON Schema)"
        )
    latest = versions[-1].source.references if versions else ()
    source = SchemaText(kind, read_text(path), question.references or latest)
    return ProposedSchema(
        subject, source, parse_schema(source, base.document, str(path)), str(path)
    )


def _answer_folder(question: CheckRequest, shelf: ContractFolder, gate: Gate) -> list[CheckResult]:
    subjects = shelf.subjects() if question.subject is None else [question.subject]
    if not subjects:
        raise CannotCheckError(
            f"{shelf.title} has no contracts: make a folder for each subject, with v1.avsc, "
            "v1.proto or v1.json in it"
        )
    return [_answer_subject(question, shelf, subject, gate) for subject in subjects]


def _answer_subject(
    question: CheckRequest, shelf: ContractFolder, subject: str, gate: Gate
) -> CheckResult:
    try:
        own = shelf.versions(subject)
        if not own:
            raise CannotCheckError(f"{shelf.title} has no version of {subject}")
        base = question.base
        earlier = own[:-1] if base is None else base.versions(subject)
        proposed = own[-1]
        edited = None if base is None else _rewritten(own, earlier, base)
        if edited is not None:
            return CheckResult(subject, CheckStatus.BREAKING, file=edited.path, findings=(edited,))
        proposal = ProposedSchema(subject, proposed.source, proposed.schema, proposed.path)
        terms = _terms(question, shelf if base is None else base, subject, shelf)
        return gate.check(proposal, earlier, terms, _readers(shelf, base, subject))
    except ClientError as wrong:
        return unchecked(subject, str(wrong), "" if question.base else str(shelf.folder))


def _rewritten(
    own: Sequence[ContractVersion], published: Sequence[ContractVersion], base: ContractStore
) -> BreakingChange | None:
    """The first version that is not what it was when it was published.

    Two folders number versions and references alike. A registry may give a version another
    number, so what is there under any number was not rewritten.
    """
    known = {one.number: one for one in published}
    if isinstance(base, ContractFolder):
        edited = [
            one for one in own if one.number in known and not _is_same(one, known[one.number])
        ]
    else:
        texts = {one.schema.canonical for one in published}
        own_texts = {one.schema.canonical for one in own}
        edited = [
            one
            for one in own
            if one.number in known
            and one.schema.canonical not in texts
            and known[one.number].schema.canonical not in own_texts
        ]
    if not edited:
        return None
    next_number = max(own[-1].number, published[-1].number) + 1
    return rewritten(edited[0], known[edited[0].number], next_number)


def _is_same(one: ContractVersion, other: ContractVersion) -> bool:
    return (one.schema.canonical, one.source.references) == (
        other.schema.canonical,
        other.source.references,
    )


def _readers(shelf: ContractFolder, base: ContractStore | None, subject: str) -> list[Reader]:
    """Those of both places; the folder's word counts where both know one."""
    found = {one.name: one for one in ([] if base is None else base.readers(subject))}
    found |= {one.name: one for one in shelf.readers(subject)}
    return list(found.values())


def _terms(
    question: CheckRequest, base: ContractStore, subject: str, own: ContractFolder | None = None
) -> CompatibilitySettings:
    terms = (own.own_terms(subject) if own is not None else None) or base.terms(subject)
    return terms if question.level is None else terms._replace(level=question.level)
