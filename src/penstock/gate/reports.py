"""Results for people and programs: text, JSON, GitHub annotations, JUnit. Each returns a text."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final
from xml.etree import ElementTree

from penstock.gate.check import (
    BreakingChange,
    CheckResult,
    CheckStatus,
    Proof,
    ReaderResult,
    exit_status,
)
from penstock.gate.contracts import RecordedResult
from penstock.gate.proof import Trial
from penstock.schemas.readers import Reader

_ABSENT: Final = "(nothing)"
_EVENT_CHARACTERS_MAX: Final = 2_000


def as_text(results: Sequence[CheckResult]) -> str:
    """For a terminal."""
    lines: list[str] = []
    for result in results:
        lines += [*_text_lines(result), ""]
    counts = [
        f"{sum(one.status is status for one in results)} {status}"
        for status in CheckStatus
        if any(one.status is status for one in results)
    ]
    return "\n".join([*lines, ", ".join(counts)]) + "\n"


def _text_lines(result: CheckResult) -> Iterable[str]:
    if result.status is CheckStatus.UNCHECKED:
        yield f"{result.subject or result.file}: could not be checked"
        yield f"  {result.error}"
        return
    yield f"{result.subject}: {headline(result)}"
    for finding in result.findings:
        yield from _finding_lines(finding)
    if result.level is not None:
        yield from _order_lines(result)
    for showing in result.showings:
        yield from _showing_lines(showing)
    for reader in result.readers:
        yield from _reader_lines(reader)
    if result.recorded is not None:
        yield from _tally_lines(result.recorded)
    for one in result.lints:
        yield f"  warning {one.kind} at {one.path}: {one.message}"
        yield f"      {one.remedy}"


def headline(result: CheckResult) -> str:
    """The verdict in one line."""
    if result.is_known and result.status is CheckStatus.COMPATIBLE:
        return f"compatible: it is there already ({result.level})"
    against = "no version yet" if result.against is None else f"version {result.against}"
    if result.level is None:
        return "BREAKING"
    if result.status is CheckStatus.COMPATIBLE:
        return f"compatible under {result.level}, against {against}"
    if result.findings:
        return f"BREAKING under {result.level}, against {against}"
    if result.recorded is not None and result.recorded.failed:
        return f"BREAKING for {result.recorded.failed} recorded events, against {against}"
    broken = [one.reader.title for one in result.readers if one.status is CheckStatus.BREAKING]
    return f"BREAKING for {', '.join(broken)}, though {result.level} allows it"


def _finding_lines(finding: BreakingChange) -> Iterable[str]:
    yield f"  {finding.kind} at {finding.path}"
    yield f"      {finding.sentence}"
    yield f"      before: {_ABSENT if finding.before is None else finding.before}"
    yield f"      after:  {_ABSENT if finding.after is None else finding.after}"


def _order_lines(result: CheckResult) -> Iterable[str]:
    yield f"  passes under {', '.join(result.passes)}"
    yield f"  upgrade: {result.level} means {result.forced_order}; this change: {result.safe_order}"


def _showing_lines(showing: Proof) -> Iterable[str]:
    evidence = showing.evidence
    sides = f"{showing.writer} writes, {showing.reader} reads"
    if evidence.missing:
        yield f"  no proof ({sides}): {evidence.missing}"
    elif evidence.fails is not None:
        title = "counter-example" if showing.is_refused else "beware, the rules allow it and yet"
        yield f"  {title} ({sides}):"
        yield from _trial_lines(evidence.fails)
    elif evidence.reads is not None:
        if showing.is_stricter:
            yield "  the rules refuse this, and no event was found that breaks: they are stricter"
        yield f"  {evidence.trials} events were read ({sides}), such as:"
        yield from _trial_lines(evidence.reads)


def _trial_lines(trial: Trial) -> Iterable[str]:
    yield f"      event:  {_shown(trial.event)}"
    if trial.failure is not None:
        yield f"      fails:  {trial.failure}"
    if trial.seen is not None and (trial.failure is not None or trial.seen != trial.event):
        yield f"      read:   {_shown(trial.seen)}"


def _shown(text: str) -> str:
    if len(text) <= _EVENT_CHARACTERS_MAX:
        return text
    return f"{text[:_EVENT_CHARACTERS_MAX]}… ({len(text)} characters)"


def _reader_lines(result: ReaderResult) -> Iterable[str]:
    reader = result.reader
    owner = f" ({reader.owner})" if reader.owner else ""
    if result.is_expired:
        yield f"  reader {reader.title}{owner}: expired on {reader.last_day}, not checked"
    elif result.status is CheckStatus.COMPATIBLE:
        yield f"  reader {reader.title}{owner}: reads it"
    else:
        yield f"  reader {reader.title}{owner}: BREAKS"
        for finding in result.findings:
            yield from (f"    {line}" for line in _finding_lines(finding))
        if result.showing is not None and result.showing.evidence.fails is not None:
            yield from (f"    {line}" for line in _showing_lines(result.showing))


def _tally_lines(tally: RecordedResult) -> Iterable[str]:
    read = tally.events - tally.failed
    yield f"  recorded in {tally.topic}: {read} of {tally.events} events can be read"
    for one in tally.by_writer.values():
        yield f"      {one.writer}: {one.events} events, {one.failed} fail"
        if one.failed:
            reasons = ", ".join(f"{reason} {count}" for reason, count in one.reasons.items())
            yield f"          {reasons}; first at {one.first}"


def as_json(results: Sequence[CheckResult]) -> str:
    """One document."""
    document = {
        "status": exit_status(results),
        "results": [result_document(one) for one in results],
    }
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def result_document(result: CheckResult) -> dict[str, Any]:
    """One result as JSON has it."""
    return {
        "subject": result.subject,
        "status": str(result.status),
        "file": result.file or None,
        "error": result.error or None,
        "compatibility": None if result.level is None else str(result.level),
        "known": result.is_known,
        "against": result.against,
        "findings": [_finding_document(one) for one in result.findings],
        "passes": [str(level) for level in result.passes],
        "upgrade": {"forced": str(result.forced_order), "safe": str(result.safe_order)},
        "events": [_showing_document(one) for one in result.showings],
        "lints": [one._asdict() for one in result.lints],
        "readers": [
            {
                **reader_document(one.reader),
                "status": "expired" if one.is_expired else str(one.status),
                "findings": [_finding_document(finding) for finding in one.findings],
                "events": None if one.showing is None else _showing_document(one.showing),
            }
            for one in result.readers
        ],
        "recorded": None if result.recorded is None else _tally_document(result.recorded),
    }


def reader_document(reader: Reader) -> dict[str, Any]:
    """A reader as JSON has it."""
    return {
        "name": reader.name,
        "version": reader.version or None,
        "owner": reader.owner or None,
        "fields": list(reader.fields),
        "expires": None if reader.last_day is None else reader.last_day.isoformat(),
    }


def _finding_document(finding: BreakingChange) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "path": finding.path,
        "message": finding.sentence,
        "before": finding.before,
        "after": finding.after,
        "fails": "new reads old" if finding.new_is_reader else "old reads new",
    }


def _showing_document(showing: Proof) -> dict[str, Any]:
    evidence = showing.evidence
    return {
        "writer": showing.writer,
        "reader": showing.reader,
        "refused": showing.is_refused,
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
    """Workflow commands, which GitHub Actions shows beside the file."""
    lines = []
    for result in results:
        if result.status is CheckStatus.COMPATIBLE:
            lines.append(_command("notice", result, headline(result), ""))
        else:
            body = "\n".join(list(_text_lines(result))[1:])
            title = result.error if result.status is CheckStatus.UNCHECKED else headline(result)
            lines.append(_command("error", result, title, body))
        lines += [
            _command("warning", result, one.kind, f"{one.path}: {one.message} {one.remedy}")
            for one in result.lints
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
    """One test case per subject: breaking is a failure, what could not be checked an error."""
    suite = ElementTree.Element(
        "testsuite",
        name="penstock contract check",
        tests=str(len(results)),
        failures=str(sum(one.status is CheckStatus.BREAKING for one in results)),
        errors=str(sum(one.status is CheckStatus.UNCHECKED for one in results)),
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
    """XML has no way to write most control characters."""
    return "".join(
        one if one.isprintable() or one in "\n\t" else "\N{REPLACEMENT CHARACTER}" for one in text
    )


def _tally_document(tally: RecordedResult) -> dict[str, Any]:
    """What came of a topic's events, as JSON has it."""
    return {
        "topic": tally.topic,
        "events": tally.events,
        "failed": tally.failed,
        "empty": tally.empty,
        "writers": [
            {
                "writer": one.writer,
                "events": one.events,
                "failed": one.failed,
                "reasons": dict(one.reasons),
                "first": one.first or None,
            }
            for one in tally.by_writer.values()
        ],
    }


class Format(StrEnum):
    """How results are said."""

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
