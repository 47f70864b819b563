"""Check results as text, JSON, GitHub annotations and JUnit. Every function returns a text."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final
from xml.etree import ElementTree

from penstock.gate.proof import Trial
from penstock.gate.results import (
    BreakingChange,
    CheckResult,
    CheckStatus,
    Proof,
    ReaderResult,
    RecordedResult,
    exit_status,
)
from penstock.schemas.readers import Reader

_ABSENT: Final = "(absent)"
_EVENT_CHARACTERS_MAX: Final = 2_000


def as_text(results: Sequence[CheckResult]) -> str:
    """For a terminal."""
    lines: list[str] = []
    for result in results:
        lines += [*_text_lines(result), ""]
    counts = Counter(result.status for result in results)
    summary = ", ".join(f"{counts[status]} {status}" for status in CheckStatus if counts[status])
    return "\n".join([*lines, summary]) + "\n"


def _text_lines(result: CheckResult) -> Iterable[str]:
    if result.status is CheckStatus.UNCHECKED:
        yield f"{result.subject or result.file}: could not be checked"
        yield f"  {result.error}"
        return
    yield f"{result.subject}: {headline(result)}"
    for change in result.breaking_changes:
        yield from _change_lines(change)
    if result.level is not None:
        yield from _order_lines(result)
    for proof in result.proofs:
        yield from _proof_lines(proof)
    for reader in result.readers:
        yield from _reader_lines(reader)
    if result.recorded is not None:
        yield from _recorded_lines(result.recorded)
    for lint in result.lints:
        yield f"  warning {lint.kind} at {lint.path}: {lint.message}"
        yield f"      fix:    {lint.remedy}"


def headline(result: CheckResult) -> str:
    """The result in one line."""
    if result.is_known and result.status is CheckStatus.COMPATIBLE:
        return f"compatible: this schema is registered already ({result.level})"
    against = "no earlier version" if result.against is None else f"version {result.against}"
    if result.level is None:
        return "BREAKING"
    if result.status is CheckStatus.COMPATIBLE:
        return f"compatible under {result.level}, against {against}"
    if result.breaking_changes:
        return f"BREAKING under {result.level}, against {against}"
    if result.recorded is not None and result.recorded.failed:
        return f"BREAKING for {result.recorded.failed} recorded events, against {against}"
    broken = [
        of_reader.reader.title
        for of_reader in result.readers
        if of_reader.status is CheckStatus.BREAKING
    ]
    return f"BREAKING for {', '.join(broken)}, though {result.level} allows it"


def _change_lines(change: BreakingChange) -> Iterable[str]:
    yield f"  {change.kind} at {change.path}"
    yield f"      {change.sentence}"
    yield f"      before: {_ABSENT if change.before is None else change.before}"
    yield f"      after:  {_ABSENT if change.after is None else change.after}"
    yield f"      fix:    {change.remedy}"


def _order_lines(result: CheckResult) -> Iterable[str]:
    yield f"  allowed by {', '.join(result.passes)}"
    yield f"  upgrade: {result.level} means {result.forced_order}; this change: {result.safe_order}"


def _proof_lines(proof: Proof) -> Iterable[str]:
    evidence = proof.evidence
    sides = f"{proof.writer} writes, {proof.reader} reads"
    if evidence.missing:
        yield f"  no proof ({sides}): {evidence.missing}"
    elif evidence.fails is not None:
        refused = "counter-example"
        title = refused if proof.is_refused else "beware: the rules allow this event that fails"
        yield f"  {title} ({sides}):"
        yield from _trial_lines(evidence.fails)
    elif evidence.reads is not None:
        if proof.is_stricter:
            yield "  the rules are stricter than the data: no event was found that breaks"
        yield f"  {evidence.trials} events were read ({sides}), for example:"
        yield from _trial_lines(evidence.reads)


def _trial_lines(trial: Trial) -> Iterable[str]:
    yield f"      event:  {_shortened(trial.event)}"
    if trial.failure is not None:
        yield f"      fails:  {trial.failure}"
    if trial.seen is not None and (trial.failure is not None or trial.seen != trial.event):
        yield f"      read:   {_shortened(trial.seen)}"


def _shortened(text: str) -> str:
    if len(text) <= _EVENT_CHARACTERS_MAX:
        return text
    return f"{text[:_EVENT_CHARACTERS_MAX]}… ({len(text)} characters)"


def _reader_lines(result: ReaderResult) -> Iterable[str]:
    reader = result.reader
    owner = f" ({reader.owner})" if reader.owner else ""
    if result.is_expired:
        yield f"  reader {reader.title}{owner}: expired on {reader.last_day}, not checked"
    elif result.status is CheckStatus.COMPATIBLE:
        yield f"  reader {reader.title}{owner}: can read it"
    else:
        yield f"  reader {reader.title}{owner}: BREAKS"
        for change in result.breaking_changes:
            yield from (f"    {line}" for line in _change_lines(change))
        if result.proof is not None and result.proof.evidence.fails is not None:
            yield from (f"    {line}" for line in _proof_lines(result.proof))


def _recorded_lines(recorded: RecordedResult) -> Iterable[str]:
    read = recorded.events - recorded.failed
    yield f"  recorded in {recorded.topic}: {read} of {recorded.events} events can be read"
    for result in recorded.by_writer.values():
        yield f"      {result.writer}: {result.events} events, {result.failed} fail"
        if result.failed:
            reasons = ", ".join(f"{reason} {count}" for reason, count in result.reasons.items())
            yield f"          {reasons}; first at {result.first}"


def as_json(results: Sequence[CheckResult]) -> str:
    """One document."""
    document = {
        "status": exit_status(results),
        "results": [result_document(result) for result in results],
    }
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def result_document(result: CheckResult) -> dict[str, Any]:
    """One result as a JSON object."""
    return {
        "subject": result.subject,
        "status": str(result.status),
        "file": result.file or None,
        "error": result.error or None,
        "compatibility": None if result.level is None else str(result.level),
        "known": result.is_known,
        "against": result.against,
        "findings": [_change_document(change) for change in result.breaking_changes],
        "passes": [str(level) for level in result.passes],
        "upgrade": {"forced": str(result.forced_order), "safe": str(result.safe_order)},
        "events": [_proof_document(proof) for proof in result.proofs],
        "lints": [lint._asdict() for lint in result.lints],
        "readers": [
            {
                **reader_document(of_reader.reader),
                "status": "expired" if of_reader.is_expired else str(of_reader.status),
                "findings": [_change_document(change) for change in of_reader.breaking_changes],
                "events": None if of_reader.proof is None else _proof_document(of_reader.proof),
            }
            for of_reader in result.readers
        ],
        "recorded": None if result.recorded is None else _recorded_document(result.recorded),
    }


def reader_document(reader: Reader) -> dict[str, Any]:
    """A reader as a JSON object."""
    return {
        "name": reader.name,
        "version": reader.version or None,
        "owner": reader.owner or None,
        "fields": list(reader.fields),
        "expires": None if reader.last_day is None else reader.last_day.isoformat(),
    }


def _change_document(change: BreakingChange) -> dict[str, Any]:
    return {
        "kind": change.kind,
        "path": change.path,
        "message": change.sentence,
        "before": change.before,
        "after": change.after,
        "fails": "new reads old" if change.new_is_reader else "old reads new",
        "remedy": change.remedy,
    }


def _proof_document(proof: Proof) -> dict[str, Any]:
    evidence = proof.evidence
    return {
        "writer": proof.writer,
        "reader": proof.reader,
        "refused": proof.is_refused,
        "trials": evidence.trials,
        "reads": _trial_document(evidence.reads),
        "fails": _trial_document(evidence.fails),
        "missing": evidence.missing or None,
    }


def _trial_document(trial: Trial | None) -> dict[str, Any] | None:
    if trial is None:
        return None
    return {
        "event": trial.event,
        "bytes": trial.payload.hex(),
        "read": trial.seen,
        "failure": trial.failure,
    }


def as_github(results: Sequence[CheckResult]) -> str:
    """Workflow commands, which GitHub Actions shows as annotations of the file."""
    lines = []
    for result in results:
        if result.status is CheckStatus.COMPATIBLE:
            lines.append(_command("notice", result, headline(result), ""))
        else:
            body = "\n".join(list(_text_lines(result))[1:])
            title = result.error if result.status is CheckStatus.UNCHECKED else headline(result)
            lines.append(_command("error", result, title, body))
        lines += [
            _command("warning", result, lint.kind, f"{lint.path}: {lint.message} {lint.remedy}")
            for lint in result.lints
        ]
    return "".join(f"{line}\n" for line in lines)


def _command(kind: str, result: CheckResult, title: str, body: str) -> str:
    where = f"file={_property(result.file)}," if result.file else ""
    heading = _property(f"{result.subject}: {title}")
    return f"::{kind} {where}title={heading}::{_escaped(body or title)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")


def as_junit(results: Sequence[CheckResult]) -> str:
    """One test case per subject: breaking is a failure, unchecked is an error."""
    suite = ElementTree.Element(
        "testsuite",
        name="penstock contract check",
        tests=str(len(results)),
        failures=str(sum(result.status is CheckStatus.BREAKING for result in results)),
        errors=str(sum(result.status is CheckStatus.UNCHECKED for result in results)),
    )
    for result in results:
        attributes = {"name": result.subject or result.file, "classname": "contracts"}
        if result.file:
            attributes["file"] = result.file
        case = ElementTree.SubElement(suite, "testcase", attributes)
        text = _printable("\n".join(_text_lines(result)))
        if result.status is CheckStatus.BREAKING:
            ElementTree.SubElement(
                case, "failure", message=_printable(headline(result))
            ).text = text
        elif result.status is CheckStatus.UNCHECKED:
            ElementTree.SubElement(case, "error", message=_printable(result.error)).text = text
        else:
            ElementTree.SubElement(case, "system-out").text = text
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _printable(text: str) -> str:
    """The text without control characters, which XML cannot contain."""
    return "".join(
        character if character.isprintable() or character in "\n\t" else "\N{REPLACEMENT CHARACTER}"
        for character in text
    )


def _recorded_document(recorded: RecordedResult) -> dict[str, Any]:
    return {
        "topic": recorded.topic,
        "events": recorded.events,
        "failed": recorded.failed,
        "empty": recorded.empty,
        "writers": [
            {
                "writer": result.writer,
                "events": result.events,
                "failed": result.failed,
                "reasons": dict(result.reasons),
                "first": result.first or None,
            }
            for result in recorded.by_writer.values()
        ],
    }


class Format(StrEnum):
    """The output formats."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"
    JUNIT = "junit"


FORMATS: Final[Mapping[Format, Callable[[Sequence[CheckResult]], str]]] = {
    Format.TEXT: as_text,
    Format.JSON: as_json,
    Format.GITHUB: as_github,
    Format.JUNIT: as_junit,
}
