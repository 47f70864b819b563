"""`penstock contract …`: is a change safe, what would applying a folder do, and who reads.

Exit status of `check`: 0 compatible, 1 breaking, 2 could not be checked.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer

from penstock.cli.reaching import AsJson, show_json
from penstock.client.contracts.checking import Gate, Result, exit_status
from penstock.client.contracts.folder import FolderShelf
from penstock.client.contracts.model import CannotCheck, Shelf
from penstock.client.contracts.planning import Action, Plan, Planner
from penstock.client.contracts.proposals import Question, answer
from penstock.client.contracts.registry_api import RegistryApi
from penstock.client.contracts.registry_shelf import RegistryShelf
from penstock.client.contracts.reports import FORMATS, Format, as_text, result_document
from penstock.client.errors import ClientError
from penstock.schemas.compatibility import Level
from penstock.schemas.model import Reference

app = typer.Typer(help="Check, plan and apply changes to contracts.", no_args_is_help=True)
CANNOT_CHECK: Final = 2

RegistryUrl = Annotated[
    str | None, typer.Option("--registry", "-r", help="The registry: http://host:port.")
]
Registry = Annotated[str, typer.Option("--registry", "-r", help="The registry: http://host:port.")]


def today() -> date:
    """By UTC, as registries and their clients may be anywhere."""
    return datetime.fromtimestamp(time.time(), UTC).date()


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
) -> None:
    """Say whether a change is safe, and prove it with events."""
    if registry is not None and contracts is not None:
        fail("compare with --registry or with --contracts, not with both")
    gate = Gate(today(), seed, shows_events=events)
    with telling():
        base = _base(registry, contracts)
        question = Question(
            proposed, subject, base, mode, tuple(map(read_reference, reference or ()))
        )
        if not proposed.exists():
            raise CannotCheck(f"{proposed} is not there")
        results = answer(question, gate)
    show(results, format)
    raise typer.Exit(exit_status(results))


def _base(registry: str | None, contracts: Path | None) -> Shelf | None:
    if registry is not None:
        return RegistryShelf(RegistryApi(registry))
    return None if contracts is None else FolderShelf(contracts)


def show(results: list[Result], format: Format) -> None:
    """On standard output, in the format."""
    sys.stdout.write(FORMATS[format](results))


def read_reference(text: str) -> Reference:
    """NAME=SUBJECT:VERSION."""
    name, _, place = text.partition("=")
    subject, _, version = place.rpartition(":")
    if not name or not subject or not version.isdecimal():
        raise CannotCheck(f"{text!r} is no reference: write it NAME=SUBJECT:VERSION")
    return Reference(name, subject, int(version))


@app.command()
def plan(
    folder: Annotated[Path, typer.Argument(help="The folder of contracts.")],
    registry: Registry,
    as_json: AsJson = False,
) -> None:
    """Show what applying a folder of contracts would change. Exit status 1 if it would fail."""
    with telling(), RegistryApi(registry) as api:
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
    with telling(), RegistryApi(registry) as api:
        planner = _planner(folder, api)
        found = planner.plan()
        if not found.is_refused:
            for action in found.actions:
                planner.apply(action)
    show_plan(found, as_json=as_json, applied=not found.is_refused)
    raise typer.Exit(1 if found.is_refused else 0)


def _planner(folder: Path, api: RegistryApi) -> Planner:
    now = today()
    return Planner(FolderShelf(folder), api, Gate(now), now)


def show_plan(plan: Plan, *, as_json: bool, applied: bool) -> None:
    """The changes, and why one would be refused."""
    if as_json:
        show_json(
            {
                "applied": applied,
                "refused": plan.is_refused,
                "actions": [_action_document(action) for action in plan.actions],
                "unmanaged": list(plan.unmanaged),
            }
        )
        return
    for action in plan.actions:
        before = "" if action.before is None else f"{action.before} -> "
        sign = "!" if action.is_refused else "+" if action.before is None else "~"
        typer.echo(f"{sign} {action.subject}: {action.kind} {before}{action.after}")
    for action in plan.actions:
        if action.result is not None and action.is_refused:
            typer.echo("\n" + as_text([action.result]).rstrip())
    if plan.unmanaged:
        typer.echo(f"  left alone, as the folder does not know them: {', '.join(plan.unmanaged)}")
    if plan.is_refused:
        typer.echo("\nNothing was changed: what is marked ! would be refused.")
    elif not plan.actions:
        typer.echo("Nothing to change.")
    else:
        verb = "were made" if applied else "to make: penstock contract apply"
        typer.echo(f"\n{len(plan.actions)} changes {verb}")


def _action_document(action: Action) -> dict[str, Any]:
    return {
        "action": str(action.kind),
        "subject": action.subject,
        "before": action.before,
        "after": action.after,
        "refused": action.is_refused,
        "result": None if action.result is None else result_document(action.result),
    }


@contextmanager
def telling() -> Iterator[None]:
    """Turn what goes wrong inside into a message and an exit status."""
    try:
        yield
    except ClientError as wrong:
        fail(str(wrong))


def fail(message: str, status: int = CANNOT_CHECK) -> NoReturn:
    """Say so, and leave."""
    typer.echo(f"penstock: {message}", err=True)
    raise typer.Exit(status)
