"""`penstock contract reader …`: who depends on a contract, in a registry."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.connect import AsJson, show_json, show_table
from penstock.cli.contract_report import CANNOT_CHECK, Registry, fail, telling
from penstock.client.reader_lease import today_utc
from penstock.gate.contracts import SUFFIXES, CannotCheckError, parse_schema
from penstock.gate.folder import read_text
from penstock.gate.registry_api import RegistryApi
from penstock.gate.registry_contracts import RegistryContracts
from penstock.gate.registry_readers import LEASE_DAYS, declare_reader, leased, retire_reader
from penstock.gate.reports import reader_document
from penstock.schemas.model import SchemaText
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
    with telling(), RegistryApi(registry) as api:
        reader = Reader(name, version, owner, fields=tuple(field or ()))
        if schema is not None:
            kind = SUFFIXES.get(schema.suffix)
            if kind is None:
                raise CannotCheckError(f"{schema}: name it .avsc, .proto or .json")
            source = SchemaText(kind, read_text(schema))
            parsed = parse_schema(source, RegistryContracts(api).document, str(schema))
            reader = replace(reader, schema=parsed)
        else:
            reader = replace(reader, only_fields=bool(field))
        reader = leased(reader, now, days) if days else reader
        is_new = declare_reader(api, subject, reader, now)
    typer.echo(f"{reader.title} {'is declared' if is_new else 'was declared already'}")


@app.command("list")
def list_readers(subject: Subject, registry: Registry, as_json: AsJson = False) -> None:
    """Show who reads a subject."""
    with telling(), RegistryApi(registry) as api:
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
    with telling(), RegistryApi(registry) as api:
        was_there = retire_reader(api, subject, name)
    if not was_there:
        fail(f"{subject} has no reader {name}", CANNOT_CHECK)
    typer.echo(f"{name} is retired")
