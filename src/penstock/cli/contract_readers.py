"""`penstock contract reader …`: who depends on a contract, in a registry."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.contract_report import CANNOT_CHECK, CLIENT, Registry, fail, telling
from penstock.cli.output import AsJson, show_json, show_table
from penstock.cli.registry_connect import read_schema_file, registry_api
from penstock.client.reader_lease import (
    LEASE_DAYS,
    declare_reader,
    leased,
    retire_reader,
    today_utc,
)
from penstock.gate.contracts import parse_schema
from penstock.gate.registry_contracts import RegistryContracts
from penstock.gate.reports import reader_document
from penstock.schemas.readers import Reader

app = typer.Typer(help="Declare, list and retire the readers of a contract.", no_args_is_help=True)

Subject = Annotated[str, typer.Option("--subject", "-s", help="The subject that is read.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The reader, such as fraud-scorer.")]


@app.command()
def declare(
    name: Name,
    subject: Subject,
    registry: Registry,
    schema: Annotated[
        Path | None, typer.Option("--schema", help="What it reads with; default: the latest.")
    ] = None,
    field: Annotated[
        list[str] | None, typer.Option("--field", "-f", help="A field it uses; dots lead inside.")
    ] = None,
    version: Annotated[str, typer.Option("--version", help="Its own, such as 7.")] = "",
    owner: Annotated[str, typer.Option("--owner", help="Whom to ask.")] = "",
    days: Annotated[
        int, typer.Option("--days", min=0, help="Counts so long unless renewed; 0: for ever.")
    ] = LEASE_DAYS,
) -> None:
    """Declare a reader, or renew it. Run it with each deployment, or once a day."""
    now = today_utc()
    with telling(), registry_api(registry, CLIENT) as api:
        reader = Reader(name, version, owner, fields=tuple(field or ()))
        if schema is not None:
            source = read_schema_file(schema, None, None)
            parsed = parse_schema(source, RegistryContracts(api).text, str(schema))
            reader = replace(reader, schema=parsed)
        else:
            reader = replace(reader, only_fields=bool(field))
        reader = leased(reader, now, days) if days else reader
        is_new = declare_reader(api, subject, reader, now)
    typer.echo(f"{reader.title} {'is declared' if is_new else 'was declared already'}")


@app.command("list")
def list_readers(subject: Subject, registry: Registry, as_json: AsJson = False) -> None:
    """Show who reads a subject."""
    with telling(), registry_api(registry, CLIENT) as api:
        readers = RegistryContracts(api).readers(subject)
    if as_json:
        show_json([reader_document(one) for one in readers])
    elif readers:
        rows = [
            [
                one.name,
                one.version or "-",
                one.owner or "-",
                ",".join(one.fields) or "-",
                "-" if one.last_day is None else one.last_day.isoformat(),
            ]
            for one in readers
        ]
        show_table(["READER", "VERSION", "OWNER", "FIELDS", "EXPIRES"], rows)
    else:
        typer.echo(f"Nobody declared to read {subject}.")


@app.command()
def retire(name: Name, subject: Subject, registry: Registry) -> None:
    """Take a reader out: changes are not checked against it any more."""
    with telling(), registry_api(registry, CLIENT) as api:
        was_there = retire_reader(api, subject, name)
    if not was_there:
        fail(f"{subject} has no reader {name}", CANNOT_CHECK)
    typer.echo(f"{name} is retired")
