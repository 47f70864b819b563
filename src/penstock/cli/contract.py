"""`penstock contract …`: is a change safe, what would applying a folder do, and who reads.

Exit status of `check`: 0 compatible, 1 breaking, 2 could not be checked.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from penstock.cli.connect import LOCAL, Bootstrap, login
from penstock.cli.contract_readers import app as reader_app
from penstock.cli.contract_report import CLIENT, Registry, fail, telling
from penstock.cli.output import AsJson, show_json
from penstock.cli.registry_connect import read_references, registry_api
from penstock.client.reader_lease import today_utc
from penstock.client.registry import Registry as RegistryClient
from penstock.client.registry_api import RegistryApi
from penstock.gate.change_plan import ChangePlan, PlannedChange, Planner
from penstock.gate.check import CheckOptions
from penstock.gate.contracts import CannotCheckError, ContractStore
from penstock.gate.folder import ContractFolder
from penstock.gate.proposals import CheckRequest, check_proposed, read_proposal
from penstock.gate.recorded import try_recorded
from penstock.gate.registry_contracts import RegistryContracts
from penstock.gate.reports import FORMATS, Format, as_text, result_document
from penstock.gate.results import CheckResult, CheckStatus, exit_status
from penstock.schemas.compatibility import Level

app = typer.Typer(help="Check, plan and apply changes to contracts.", no_args_is_help=True)
app.add_typer(reader_app, name="reader")

UNMANAGED_SHOWN_MAX: Final = 10

RegistryUrl = Annotated[
    str | None, typer.Option("--registry", "-r", help="The registry: http://host:port.")
]


@app.command()
def check(
    proposed: Annotated[
        Path, typer.Option("--proposed", "-p", help="A schema file, or a folder of contracts.")
    ],
    subject: Annotated[
        str | None, typer.Option("--subject", "-s", help="The subject, such as orders-value.")
    ] = None,
    registry: RegistryUrl = None,
    contracts: Annotated[
        Path | None, typer.Option("--contracts", "-c", help="Compare with a folder of contracts.")
    ] = None,
    mode: Annotated[
        Level | None, typer.Option("--mode", help="Instead of the subject's own.")
    ] = None,
    reference: Annotated[
        list[str] | None,
        typer.Option("--reference", help="NAME=SUBJECT:VERSION; default: as the latest version."),
    ] = None,
    format: Annotated[Format, typer.Option("--format", "-f", help="How to say it.")] = Format.TEXT,
    seed: Annotated[int, typer.Option("--seed", help="Events are the same for the same seed.")] = 0,
    events: Annotated[
        bool, typer.Option("--events/--no-events", help="Prove it with events.")
    ] = True,
    assert_formats: Annotated[
        bool,
        typer.Option("--assert-formats", help="JSON Schema: events must match each `format`."),
    ] = False,
    against_topic: Annotated[
        str | None, typer.Option("--against-topic", help="Try it on events of this topic, too.")
    ] = None,
    last: Annotated[int, typer.Option("--last", min=1, help="How many of them.")] = 100_000,
    bootstrap: Bootstrap = LOCAL,
) -> None:
    """Say whether a change is safe, and prove it with events."""
    if registry is not None and contracts is not None:
        fail("compare with --registry or with --contracts, not with both")
    options = CheckOptions(today_utc(), seed, proves=events, asserts_formats=assert_formats)
    with telling(), _base(registry, contracts) as base:
        question = CheckRequest(proposed, subject, base, mode, read_references(reference or ()))
        if not proposed.exists():
            raise CannotCheckError(f"{proposed} is not there")
        results = check_proposed(question, options)
        if against_topic is not None:
            tried = _Topic(against_topic, last, bootstrap, assert_formats)
            results = [_tried(question, results, registry, tried)]
    sys.stdout.write(FORMATS[format](results))
    raise typer.Exit(exit_status(results))


class _Topic(NamedTuple):
    """Recorded events to try a schema on."""

    name: str
    last: int
    bootstrap: str
    assert_formats: bool


def _tried(
    question: CheckRequest, results: list[CheckResult], registry: str | None, topic: _Topic
) -> CheckResult:
    """The one result, with what came of a topic's events."""
    if registry is None or len(results) != 1 or question.proposed.is_dir():
        raise CannotCheckError("--against-topic takes one --proposed file, and the --registry")
    if results[0].status is CheckStatus.UNCHECKED:
        return results[0]
    with RegistryClient(registry, client=CLIENT) as client:
        proposal = read_proposal(question)
        return results[0].with_recorded(
            try_recorded(
                topic.bootstrap,
                topic.name,
                topic.last,
                client,
                proposal,
                settings=login(topic.bootstrap),
                assert_formats=topic.assert_formats,
            )
        )


@contextmanager
def _base(registry: str | None, contracts: Path | None) -> Iterator[ContractStore | None]:
    """What is compared with; None where a folder is compared with itself."""
    if registry is None:
        yield None if contracts is None else ContractFolder(contracts)
        return
    with registry_api(registry, CLIENT) as api:
        yield RegistryContracts(api)


@app.command()
def plan(
    folder: Annotated[Path, typer.Argument(help="The folder of contracts.")],
    registry: Registry,
    as_json: AsJson = False,
) -> None:
    """Show what applying a folder of contracts would change. Exit status 1 if it would fail."""
    with telling(), registry_api(registry, CLIENT) as api:
        found = _planner(folder, api).plan()
    show_plan(found, as_json=as_json, applied=False)
    raise typer.Exit(1 if found.is_refused else 0)


@app.command()
def apply(
    folder: Annotated[Path, typer.Argument(help="The folder of contracts.")],
    registry: Registry,
    as_json: AsJson = False,
) -> None:
    """Make a registry hold what a folder says. What is there already is left alone."""
    with telling(), registry_api(registry, CLIENT) as api:
        planner = _planner(folder, api)
        found = planner.plan()
        if not found.is_refused:
            for change in found.changes:
                planner.apply(change)
    show_plan(found, as_json=as_json, applied=not found.is_refused)
    raise typer.Exit(1 if found.is_refused else 0)


def _planner(folder: Path, api: RegistryApi) -> Planner:
    return Planner(ContractFolder(folder), api, CheckOptions(today_utc()))


def show_plan(plan: ChangePlan, *, as_json: bool, applied: bool) -> None:
    """The changes, and why one would be refused."""
    if as_json:
        show_json(
            {
                "applied": applied,
                "refused": plan.is_refused,
                "actions": [_change_document(change) for change in plan.changes],
                "unmanaged": list(plan.unmanaged),
            }
        )
        return
    for change in plan.changes:
        before = "" if change.before is None else f"{change.before} -> "
        sign = "!" if change.is_refused else "+" if change.before is None else "~"
        typer.echo(f"{sign} {change.subject}: {change.action} {before}{change.after}")
    for change in plan.changes:
        if change.result is not None and change.is_refused:
            typer.echo("\n" + as_text([change.result]).rstrip())
    if plan.unmanaged:
        _show_unmanaged(plan.unmanaged)
    if plan.is_refused:
        typer.echo("\nNothing was changed: what is marked ! would be refused.")
    elif not plan.changes:
        typer.echo("Nothing to change.")
    else:
        verb = "were made" if applied else "to make: penstock contract apply"
        typer.echo(f"\n{len(plan.changes)} changes {verb}")


def _show_unmanaged(subjects: Sequence[str]) -> None:
    """A line for each of the first, so that a registry with hundreds stays readable."""
    typer.echo(f"  {len(subjects)} subjects are not in the folder and are left alone:")
    for subject in subjects[:UNMANAGED_SHOWN_MAX]:
        typer.echo(f"    {subject}")
    if len(subjects) > UNMANAGED_SHOWN_MAX:
        left = len(subjects) - UNMANAGED_SHOWN_MAX
        typer.echo(f"    … and {left} more (--json lists them all)")


def _change_document(change: PlannedChange) -> dict[str, Any]:
    return {
        "action": str(change.action),
        "subject": change.subject,
        "before": change.before,
        "after": change.after,
        "refused": change.is_refused,
        "result": None if change.result is None else result_document(change.result),
    }
