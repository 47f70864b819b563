"""`penstock contract …`: check, plan and apply changes to contracts.

Exit status of `check`: 0 compatible, 1 breaking, 2 could not be checked.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from penstock.cli.connect import login
from penstock.cli.contract_readers import app as reader_app
from penstock.cli.contract_report import CLIENT, contract_errors, fail
from penstock.cli.options import LOCAL_BOOTSTRAP, AsJson, Bootstrap, RegistryUrl
from penstock.cli.output import counted, show_json
from penstock.cli.registry_connect import read_references, registry_api
from penstock.client.reader_lease import today_utc
from penstock.client.registry import Registry
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

app: Final = typer.Typer(help="Check, plan and apply changes to contracts.", no_args_is_help=True)
app.add_typer(reader_app, name="reader")

UNMANAGED_SHOWN_MAX: Final = 10

Folder = Annotated[Path, typer.Argument(help="Folder of contracts.")]


@app.command()
def check(
    proposed: Annotated[
        Path, typer.Option("--proposed", "-p", help="Proposed schema file, or folder of contracts.")
    ],
    subject: Annotated[
        str | None, typer.Option("--subject", "-s", help="Subject, such as orders-value.")
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option("--registry", "-r", help="Compare with the contracts of a registry: its URL."),
    ] = None,
    contracts: Annotated[
        Path | None,
        typer.Option("--contracts", "-c", help="Compare with the contracts in a folder."),
    ] = None,
    mode: Annotated[
        Level | None, typer.Option("--mode", help="Compatibility level, instead of the subject's.")
    ] = None,
    reference: Annotated[
        list[str] | None,
        typer.Option(
            "--reference", help="NAME=SUBJECT:VERSION; default: those of the latest version."
        ),
    ] = None,
    output_format: Annotated[
        Format, typer.Option("--format", "-f", help="Format of the report.")
    ] = Format.TEXT,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the generated events.")] = 0,
    events: Annotated[
        bool, typer.Option("--events/--no-events", help="Prove the result with events.")
    ] = True,
    assert_formats: Annotated[
        bool,
        typer.Option("--assert-formats", help="JSON Schema: check `format` in events too."),
    ] = False,
    against_topic: Annotated[
        str | None,
        typer.Option(
            "--against-topic", help="Read the last events of this topic with the schema too."
        ),
    ] = None,
    last: Annotated[int, typer.Option("--last", min=1, help="Number of these events.")] = 100_000,
    bootstrap: Bootstrap = LOCAL_BOOTSTRAP,
) -> None:
    """Check whether a change is compatible, and prove the result with events."""
    if registry is not None and contracts is not None:
        fail("pass --registry or --contracts, not both")
    options = CheckOptions(today_utc(), seed, proves=events, asserts_formats=assert_formats)
    with contract_errors(), _base(registry, contracts) as base:
        request = CheckRequest(proposed, subject, base, mode, read_references(reference or ()))
        if not proposed.exists():
            raise CannotCheckError(f"{proposed} does not exist")
        results = check_proposed(request, options)
        if against_topic is not None:
            topic = _RecordedTopic(against_topic, last, bootstrap, assert_formats)
            results = [_with_topic(request, results, registry, topic)]
    sys.stdout.write(FORMATS[output_format](results))
    raise typer.Exit(exit_status(results))


class _RecordedTopic(NamedTuple):
    """The topic whose events are read with the proposed schema."""

    name: str
    last: int
    bootstrap: str
    assert_formats: bool


def _with_topic(
    request: CheckRequest, results: list[CheckResult], registry: str | None, topic: _RecordedTopic
) -> CheckResult:
    """The result of the one proposal, with that of reading a topic's events."""
    if registry is None or len(results) != 1 or request.proposed.is_dir():
        raise CannotCheckError("--against-topic needs one --proposed file and --registry")
    if results[0].status is CheckStatus.UNCHECKED:
        return results[0]
    with Registry(registry, client=CLIENT) as client:
        proposal = read_proposal(request)
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
    """The contracts to compare with; None where a folder is compared with itself."""
    if registry is None:
        yield None if contracts is None else ContractFolder(contracts)
        return
    with registry_api(registry, CLIENT) as api:
        yield RegistryContracts(api)


@app.command()
def plan(
    folder: Folder,
    registry: RegistryUrl,
    as_json: AsJson = False,
) -> None:
    """Show what applying a folder of contracts would change. Exit status 1 if it would fail."""
    with contract_errors(), registry_api(registry, CLIENT) as api:
        changes = _planner(folder, api).plan()
    show_plan(changes, as_json=as_json, applied=False)
    raise typer.Exit(1 if changes.is_refused else 0)


@app.command()
def apply(
    folder: Folder,
    registry: RegistryUrl,
    as_json: AsJson = False,
) -> None:
    """Apply a folder of contracts to a registry. Nothing is deleted."""
    with contract_errors(), registry_api(registry, CLIENT) as api:
        planner = _planner(folder, api)
        changes = planner.plan()
        if not changes.is_refused:
            for change in changes.changes:
                planner.apply(change)
    show_plan(changes, as_json=as_json, applied=not changes.is_refused)
    raise typer.Exit(1 if changes.is_refused else 0)


def _planner(folder: Path, api: RegistryApi) -> Planner:
    return Planner(ContractFolder(folder), api, CheckOptions(today_utc()))


def show_plan(plan: ChangePlan, *, as_json: bool, applied: bool) -> None:
    """Print the changes, and why one would be refused."""
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
        typer.echo("\nNothing was changed: changes marked ! would be refused.")
    elif not plan.changes:
        typer.echo("Nothing to change.")
    else:
        note = "applied" if applied else "to apply with `penstock contract apply`"
        typer.echo(f"\n{counted(len(plan.changes), 'change')} {note}")


def _show_unmanaged(subjects: Sequence[str]) -> None:
    """The first ones only, so that the output stays readable."""
    typer.echo(f"  not in the folder, and unchanged: {counted(len(subjects), 'subject')}")
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
