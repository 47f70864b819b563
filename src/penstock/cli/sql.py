"""`penstock sql`: query topics with SQL."""

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from penstock.cli.connect import check_reachable, kafka_properties
from penstock.cli.error_output import REFUSED, UNREACHABLE, fail
from penstock.cli.options import LOCAL_BOOTSTRAP, LOCAL_REGISTRY, Bootstrap, RegistryUrl
from penstock.cli.output import cell, show_table
from penstock.extras import require

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.console.sql.run_query import OpenQuery

_UNAVAILABLE: Final = 503


class SqlFormat(StrEnum):
    """How rows are written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


def sql(
    query: Annotated[str, typer.Argument(help="One SELECT; a topic is a table by its name.")],
    format_: Annotated[
        SqlFormat, typer.Option("--format", help="How rows are written.")
    ] = SqlFormat.TABLE,
    output: Annotated[
        Path | None, typer.Option("--output", help="File to write; needed for parquet.")
    ] = None,
    begin: Annotated[
        str, typer.Option("--from", help="earliest, latest, an offset, or @T (milliseconds).")
    ] = "earliest",
    until: Annotated[str, typer.Option("--until", help="The same; exclusive.")] = "latest",
    reader: Annotated[
        list[str] | None,
        typer.Option("--reader", help="Version to read a topic as: topic=N; may be repeated."),
    ] = None,
    records: Annotated[
        int, typer.Option("--records", min=1, help="Most records read, of all topics together.")
    ] = 1_000_000,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Most rows of a table.")] = 1_000,
    bootstrap: Bootstrap = LOCAL_BOOTSTRAP,
    registry: RegistryUrl = LOCAL_REGISTRY,
) -> None:
    """Query topics with SQL. A record is a row, with its value's fields, _key, _offset and more."""
    require("sql")
    from penstock.console.sql.run_query import SqlError, open_query
    from penstock.console.sql.sql_request import RECORDS_MAX, ROWS_MAX, SqlBody, SqlLimits

    if format_ is SqlFormat.PARQUET and output is None:
        raise typer.BadParameter("--format parquet needs --output FILE")
    limits = SqlLimits(
        rows=min(rows, ROWS_MAX), records=min(records, RECORDS_MAX), scan_bytes=1 << 30
    )
    body = SqlBody(
        query, reader=_readers(reader), from_=_place(begin), until=_place(until), limits=limits
    )
    check_reachable(bootstrap)
    try:
        with open_query(kafka_properties(bootstrap), registry, body) as opened:
            _write(opened, format_, output, limits.rows)
    except SqlError as error:
        is_unreachable = error.failure.status == _UNAVAILABLE
        fail(error.failure.message, UNREACHABLE if is_unreachable else REFUSED)
    if not opened.is_complete:
        read = ", ".join(f"{topic}: {share}" for topic, share in opened.scanned.items())
        typer.echo(f"Not all records were read ({read}): raise --records, or use --from", err=True)


def _place(text: str) -> Any:
    if text in ("earliest", "latest"):
        return text
    name, number = ("time", text[1:]) if text.startswith("@") else ("offset", text)
    if not number.isdecimal():
        raise typer.BadParameter(f"{text!r} is not earliest, latest, an offset or @T")
    return {name: number}


def _readers(given: list[str] | None) -> dict[str, int]:
    readers = {}
    for row in given or ():
        topic, _, version = row.rpartition("=")
        if not topic or not version.isdecimal():
            raise typer.BadParameter(f"--reader {row!r} is not topic=N")
        readers[topic] = int(version)
    return readers


def _write(opened: "OpenQuery", form: SqlFormat, output: Path | None, rows_max: int) -> None:
    if form is SqlFormat.PARQUET:
        assert output is not None, "checked before"
        _write_parquet(opened, output)
        return
    names = [column["name"] for column in opened.columns]
    file = sys.stdout if output is None else output.open("w", encoding="utf-8", newline="")
    try:
        if form is SqlFormat.TABLE:
            _show(opened, names, rows_max)
        elif form is SqlFormat.CSV:
            writer = csv.writer(file)
            writer.writerow(names)
            for row in _rows(opened.all_batches()):
                writer.writerow(["" if each is None else _text(each) for each in row])
        else:
            for row in _rows(opened.all_batches()):
                line = msgspec.json.encode(dict(zip(names, row, strict=True)))
                file.write(f"{line.decode()}\n")
    finally:
        if output is not None:
            file.close()


def _rows(batches: Iterable["pa.RecordBatch"]) -> Iterator[list[Any]]:
    from penstock.console.page_values import page_value

    for batch in batches:
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield [page_value(each) for each in row]


def _show(opened: "OpenQuery", names: list[str], rows_max: int) -> None:
    rows = list(_rows(opened.batches()))
    shown = [[cell(None if each is None else _text(each)) for each in row] for row in rows]
    show_table(names, shown[:rows_max])
    if len(rows) > rows_max:
        typer.echo(f"(the first {rows_max} rows; --rows shows more)", err=True)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)


def _write_parquet(opened: "OpenQuery", output: Path) -> None:
    import pyarrow.parquet as pq

    reader = opened.all_batches()
    with pq.ParquetWriter(output, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
