"""`penstock contract reader …`: declare, list and retire the readers of a contract."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli.contract_report import CANNOT_CHECK, CLIENT, contract_errors, fail
from penstock.cli.options import AsJson, RegistryUrl
from penstock.cli.output import show_json, show_table
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

app: Final = typer.Typer(
    help="Declare, list and retire the readers of a contract.", no_args_is_help=True
)

Subject = Annotated[str, typer.Option("--subject", "-s", help="Subject that the reader reads.")]
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the reader, such as fraud-scorer.")
]


@app.command()
def declare(
    name: Name,
    subject: Subject,
    registry: RegistryUrl,
    schema: Annotated[
        Path | None,
        typer.Option("--schema", help="Schema that it reads with; default: the latest version."),
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option(
            "--field", "-f", help="Field that it uses, such as customer.id; may be repeated."
        ),
    ] = None,
    version: Annotated[
        str, typer.Option("--version", help="Version of the reader, such as 7.")
    ] = "",
    owner: Annotated[str, typer.Option("--owner", help="Contact for this reader.")] = "",
    days: Annotated[
        int,
        typer.Option(
            "--days", min=0, help="Days until the declaration expires unless renewed; 0: never."
        ),
    ] = LEASE_DAYS,
) -> None:
    """Declare a reader, or renew its declaration. Run it with each deployment, or daily."""
    now = today_utc()
    with contract_errors(), registry_api(registry, CLIENT) as api:
        reader = Reader(name, version, owner, fields=tuple(field or ()))
        if schema is not None:
            source = read_schema_file(schema, None, None)
            parsed = parse_schema(source, RegistryContracts(api).text, str(schema))
            reader = replace(reader, schema=parsed)
        else:
            reader = replace(reader, only_fields=bool(field))
        reader = leased(reader, now, days) if days else reader
        is_new = declare_reader(api, subject, reader, now)
    typer.echo(f"{'declared' if is_new else 'already declared:'} {reader.title}")


@app.command("list")
def list_readers(subject: Subject, registry: RegistryUrl, as_json: AsJson = False) -> None:
    """List the readers of a subject."""
    with contract_errors(), registry_api(registry, CLIENT) as api:
        readers = RegistryContracts(api).readers(subject)
    if as_json:
        show_json([reader_document(reader) for reader in readers])
    elif readers:
        rows = [
            [
                reader.name,
                reader.version or "-",
                reader.owner or "-",
                ",".join(reader.fields) or "-",
                "-" if reader.last_day is None else reader.last_day.isoformat(),
            ]
            for reader in readers
        ]
        show_table(["READER", "VERSION", "OWNER", "FIELDS", "EXPIRES"], rows)
    else:
        typer.echo(f"{subject} has no declared readers.")


@app.command()
def retire(name: Name, subject: Subject, registry: RegistryUrl) -> None:
    """Retire a reader: changes are no longer checked against it."""
    with contract_errors(), registry_api(registry, CLIENT) as api:
        was_declared = retire_reader(api, subject, name)
    if not was_declared:
        fail(f"{subject} has no reader {name}", CANNOT_CHECK)
    typer.echo(f"retired {name}")
