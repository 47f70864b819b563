"""`/console/api/schemas`: subjects, versions side by side, and the verdict on a proposal.

Lists come from the registry's state in this process; checks are the gate's, over the same API that
`penstock contract check` uses. What a check needs is read and compared in a thread.
"""

from datetime import UTC, date, datetime
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query, Request, Response

from penstock.console.console_node import ConsoleNode
from penstock.console.table_responses import TableBody, table_response, write_table
from penstock.gate.advice import upgrade_advice
from penstock.gate.check import CheckOptions, check, check_pair
from penstock.gate.contracts import CannotCheckError, parse_schema
from penstock.gate.registry_contracts import RegistryContracts
from penstock.gate.results import BreakingChange, CheckResult, CheckStatus, Proof
from penstock.gateway.errors import bad_request, not_found
from penstock.gateway.json_responses import json_response
from penstock.gateway.request_bodies import SubjectName, described_body, read_document
from penstock.registry.store.events import Version
from penstock.registry.store.examination import level_of
from penstock.registry.store.state import RegistryState
from penstock.registry.subject_names import Subject, normal
from penstock.schemas.model import Reference, SchemaText, SchemaType
from penstock.schemas.readers import READERS, Reader, readers_prefix
from penstock.serde.errors import ClientError

COLUMNS: Final = ("subject", "type", "versions", "latest_id", "compatibility", "readers")
BODY_BYTES_MAX: Final = 8 << 20
QUIET_DAYS: Final = 30


class ReferenceBody(msgspec.Struct, forbid_unknown_fields=True):
    """Another schema that the proposed one imports."""

    name: str
    subject: str
    version: int


class ProposalBody(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """A schema that may become the next version."""

    schema: str
    schema_type: str = "AVRO"
    references: list[ReferenceBody] | None = None  # none given: those of the latest version


def schema_routes(node: ConsoleNode) -> APIRouter:
    """Schemas."""
    router = APIRouter(tags=["console"])
    state = node.registry.state

    @router.get("/console/api/schemas")
    async def list_subjects(request: Request) -> Response:
        """All subjects with their type, versions, level and declared readers."""
        return table_response(_subjects_table(state), request)

    @router.get("/console/api/schemas/{subject}")
    async def read_subject(subject: SubjectName) -> Response:
        """The versions of a subject, who uses them, and who declared to depend on it."""
        name = _subject(state, subject)
        contracts = RegistryContracts(node.gateway.schemas.api)
        uses, readers = await node.gateway.in_thread(
            lambda: (contracts.api.usage(name, QUIET_DAYS), contracts.readers(name))
        )
        return json_response(_subject_document(state, name, uses, readers))

    @router.get("/console/api/schemas/{subject}/diff")
    async def compare_versions(
        subject: SubjectName,
        from_: Annotated[int, Query(alias="from", ge=1)],
        to: Annotated[int, Query(ge=1)],
    ) -> Response:
        """What changes for readers between two versions, in plain words."""
        name = _subject(state, subject)
        contracts = RegistryContracts(node.gateway.schemas.api)
        return json_response(
            await node.gateway.in_thread(lambda: _compared(contracts, name, from_, to))
        )

    @router.post(
        "/console/api/schemas/{subject}/propose",
        openapi_extra=described_body(
            ProposalBody, an_avro_schema={"schema": '"string"', "schemaType": "AVRO"}
        ),
    )
    async def propose(subject: SubjectName, request: Request) -> Response:
        """Whether a schema may become the next version, with an event that proves it if not.

        Registers nothing. `verdict` is ok, breaking or invalid.
        """
        body = await read_document(request, ProposalBody, BODY_BYTES_MAX)
        contracts = RegistryContracts(node.gateway.schemas.api)
        today = datetime.fromtimestamp(node.clock() / 1000, UTC).date()
        return json_response(
            await node.gateway.in_thread(lambda: _verdict(contracts, subject, body, today))
        )

    return router


def _subject(state: RegistryState, name: str) -> Subject:
    subject = normal(name)
    if not state.has_subject(subject):
        raise not_found("unknown_subject", f"there is no subject {name!r}")
    return subject


def listed_subjects(state: RegistryState) -> list[Subject]:
    """Subjects with a version, without those that store readers."""
    return [
        subject
        for subject in sorted(state.versions)
        if not subject.startswith(READERS) and state.has_subject(subject)
    ]


def _subjects_table(state: RegistryState) -> TableBody:
    stored = [subject for subject in state.versions if subject.startswith(READERS)]
    rows = []
    for subject in listed_subjects(state):
        versions = state.live(subject)
        prefix = readers_prefix(subject)
        rows.append(
            (
                subject,
                str(versions[-1].contents.source.type),
                len(versions),
                versions[-1].id,
                str(level_of(state.config(subject))),
                sum(name.startswith(prefix) and state.has_subject(name) for name in stored),
            )
        )
    return write_table(COLUMNS, rows)


def _subject_document(
    state: RegistryState, subject: Subject, uses: dict[str, Any], readers: list[Reader]
) -> dict[str, Any]:
    versions = state.live(subject)
    return {
        "subject": subject,
        "type": str(versions[-1].contents.source.type),
        "compatibility": str(level_of(state.config(subject))),
        "readers": [_reader(each) for each in readers],
        "usage_since": str(uses["since"]),
        "versions": [_version(each, uses["uses"]) for each in versions],
    }


def _version(version: Version, uses: list[dict[str, Any]]) -> dict[str, Any]:
    source = version.contents.source
    return {
        "version": version.number,
        "id": version.id,
        "type": str(source.type),
        "schema": source.text,
        "registered": str(version.timestamp) if version.timestamp else None,
        "references": [reference._asdict() for reference in source.references],
        "usage": [
            {
                "client": use["client"],
                "role": use["role"],
                "last_seen": str(use["lastSeen"]),
                "count": use["count"],
            }
            for use in uses
            if use["version"] == version.number
        ],
    }


def _reader(reader: Reader) -> dict[str, Any]:
    return {
        "name": reader.name,
        "version": reader.version or None,
        "contact": reader.owner or None,
        "fields": list(reader.fields),
        "until": None if reader.last_day is None else reader.last_day.isoformat(),
    }


def _compared(contracts: RegistryContracts, subject: str, old: int, new: int) -> dict[str, Any]:
    schemas = []
    for number in (old, new):
        text = contracts.text(subject, number)
        if text is None:
            raise not_found("unknown_version", f"{subject} has no version {number}")
        about = f"version {number} of {subject}"
        schemas.append(parse_schema(text, contracts.text, about, strict=False))
    earlier, later = schemas
    result = check_pair(earlier, later, contracts.settings(subject).policy)
    return {
        "changes": [
            {
                "path": change.path,
                "text": change.sentence,
                "rule": change.kind,
                "verdict": _who_breaks(change),
                "before": change.before,
                "after": change.after,
                "remedy": change.remedy,
            }
            for change in result.breaking_changes
        ],
        "allowed_by": [str(level) for level in result.passes if not level.is_transitive],
        "upgrade_order": upgrade_advice(result.safe_order),
        "warnings": [lint._asdict() for lint in result.lints],
    }


def _who_breaks(change: BreakingChange) -> str:
    """In the words of `penstock schema diff`."""
    if change.new_is_reader:
        return "consumers with the new schema cannot read existing events"
    return "consumers with the old schema cannot read new events"


def _verdict(
    contracts: RegistryContracts, subject: str, body: ProposalBody, today: date
) -> dict[str, Any]:
    if body.schema_type.upper() not in SchemaType.__members__:
        raise bad_request(f"schemaType {body.schema_type!r} is not one of {', '.join(SchemaType)}")
    versions = contracts.versions(subject)
    if body.references is None:
        references = versions[-1].source.references if versions else ()
    else:
        references = tuple(Reference(row.name, row.subject, row.version) for row in body.references)
    source = SchemaText(SchemaType[body.schema_type.upper()], body.schema, references)
    level = str(contracts.settings(subject).level)
    try:
        proposed = parse_schema(source, contracts.text, "the proposed schema")
        result = check(contracts, subject, proposed, CheckOptions(today))
    except (CannotCheckError, ClientError) as error:
        finding = {"text": str(error), "rule": "INVALID_SCHEMA", "counter_example": None}
        return {"verdict": "invalid", "mode": level, "findings": [finding], "upgrade_order": None}
    return _verdict_document(result, level)


def _verdict_document(result: CheckResult, level: str) -> dict[str, Any]:
    findings = [
        {
            "text": change.sentence,
            "rule": change.kind,
            "path": change.path,
            "breaks": _who_breaks(change),
            "remedy": change.remedy,
            "counter_example": _counter_example(result.proofs, change),
        }
        for change in result.breaking_changes
    ]
    for of_reader in result.readers:
        findings += [
            {
                "text": f"reader {of_reader.reader.title}: {change.sentence}",
                "rule": change.kind,
                "path": change.path,
                "breaks": f"the declared reader {of_reader.reader.title}",
                "remedy": change.remedy,
                "counter_example": _counter_example(
                    () if of_reader.proof is None else (of_reader.proof,), change
                ),
            }
            for change in of_reader.breaking_changes
        ]
    return {
        "verdict": "ok" if result.status is CheckStatus.COMPATIBLE else "breaking",
        "mode": level,
        "known": result.is_known,
        "against": result.against,
        "findings": findings,
        "allowed_by": [str(each) for each in result.passes],
        "warnings": [lint._asdict() for lint in result.lints],
        "upgrade_order": upgrade_advice(result.safe_order),
    }


def _counter_example(proofs: tuple[Proof, ...], change: BreakingChange) -> dict[str, Any] | None:
    """An event that fails the way that the change breaks readers."""
    for proof in proofs:
        fails = proof.evidence.fails
        new_reads = proof.reader == "the proposed schema"
        if fails is not None and new_reads == change.new_is_reader:
            return {
                "writer": proof.writer,
                "reader": proof.reader,
                "event": fails.event,
                "failure": fails.failure,
                "read": fails.seen,
            }
    return None
