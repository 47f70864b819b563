"""One query: the topics that it names are read, and DuckDB runs it over them.

Exactly one SELECT. DuckDB is closed to files, networks, extensions and Python's variables before
the query is run, and its settings are locked. Blocks: used in a worker, and by `penstock sql`.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa

from penstock.client.registry import Registry
from penstock.console.page_values import page_value
from penstock.console.sql.sql_request import SqlBody, SqlFailure, SqlLimits, SqlResult
from penstock.console.sql.topic_table import TopicRange, TopicTable, read_topics
from penstock.errors import ErrorCode, Refused
from penstock.extras import require
from penstock.link.blocking import BlockingCluster
from penstock.link.settings import link_settings
from penstock.link.topic_admin import describe_topics
from penstock.serde.errors import ClientError

CLIENT: Final = "penstock-sql"
BATCH_ROWS: Final = 1_000
_THREADS: Final = 2
_LOCKED: Final = (
    "SET python_enable_replacements = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET temp_directory = ''",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)


class SqlError(Exception):
    """A query that has no result."""

    def __init__(self, failure: SqlFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class OpenQuery:
    """A query that runs: its columns, and its rows as Arrow."""

    def __init__(self, relation: Any, tables: Mapping[str, TopicTable], limits: SqlLimits) -> None:
        names, types = relation.columns, relation.types
        self.columns: list[dict[str, str]] = [
            {"name": name, "type": str(kind)} for name, kind in zip(names, types, strict=True)
        ]
        self.scanned: dict[str, str] = {
            name: f"{table.scanned} of {table.total}" for name, table in tables.items()
        }
        self.is_complete: bool = all(each.scanned == each.total for each in tables.values())
        self._relation = relation
        self._limits = limits

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, one more than the limit allows, so that a cut is noticed."""
        with _duckdb_errors():
            yield from self._relation.limit(self._limits.rows + 1).to_arrow_reader(BATCH_ROWS)

    def all_batches(self) -> pa.RecordBatchReader:
        """All rows, however many, and their schema. Raises what DuckDB raises: read in `with`."""
        reader: pa.RecordBatchReader = self._relation.to_arrow_reader(BATCH_ROWS)
        return reader


@contextmanager
def open_query(kafka: Mapping[str, str], registry_url: str, body: SqlBody) -> Iterator[OpenQuery]:
    """Read the topics and prepare the query. SqlError says what the query may not, or cannot."""
    require("sql")
    import duckdb  # loaded by the first query only

    limits = body.limits
    memory: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{limits.memory_mb}MB",
        "threads": _THREADS,
    }
    with _duckdb_errors(), duckdb.connect(":memory:", config=memory) as database:
        _check_statement(duckdb, database, body.query)
        named = database.get_table_names(body.query)
        tables = _read_tables(kafka, registry_url, body, named)
        for name, table in tables.items():
            database.register(name, table.table)
        for setting in _LOCKED:
            database.execute(setting)
        yield OpenQuery(database.sql(body.query), tables, limits)


def run_query(kafka: Mapping[str, str], registry_url: str, body: SqlBody) -> SqlResult:
    """The rows as JSON; SqlError if there are none."""
    began_s = time.perf_counter()
    rows: list[list[Any]] = []
    size_bytes, is_cut = 0, False
    with open_query(kafka, registry_url, body) as query:
        names = [column["name"] for column in query.columns]
        for batch in query.batches():
            size_bytes += batch.nbytes
            columns = [column.to_pylist() for column in batch.columns]
            rows += [list(map(page_value, row)) for row in zip(*columns, strict=True)]
            if size_bytes > body.limits.result_bytes:
                is_cut = True
                break
        assert all(len(row) == len(names) for row in rows), "a value for each column"
        is_cut = is_cut or len(rows) > body.limits.rows
        return SqlResult(
            query.columns,
            rows[: body.limits.rows],
            is_cut or not query.is_complete,
            query.scanned,
            round(time.perf_counter() - began_s, 3),
        )


def _check_statement(duckdb: Any, database: Any, query: str) -> None:
    statements = database.extract_statements(query)
    is_select = len(statements) == 1 and statements[0].type == duckdb.StatementType.SELECT
    if not is_select:
        raise SqlError(SqlFailure(400, "invalid_query", "send exactly one SELECT"))


def _read_tables(
    kafka: Mapping[str, str], registry_url: str, body: SqlBody, named: set[str]
) -> dict[str, TopicTable]:
    """The topics that a query names; other names are DuckDB's to refuse."""
    if not named:
        return {}
    try:
        with (
            BlockingCluster(kafka["bootstrap.servers"], link_settings(kafka)) as cluster,
            Registry(registry_url, client=CLIENT, attempts=2) as registry,
        ):
            topics = {row.name for row in cluster.run(describe_topics())}
            wanted = [
                TopicRange(name, body.from_, body.until, body.reader.get(name))
                for name in sorted(named & topics)
            ]
            return read_topics(cluster, registry, wanted, body.limits)
    except Refused as refusal:
        is_request = refusal.code is ErrorCode.invalid_request
        status = 400 if is_request else 503
        raise SqlError(SqlFailure(status, refusal.code.name, refusal.message)) from refusal
    except OSError as error:
        raise SqlError(SqlFailure(503, "kafka_unavailable", str(error))) from error
    except ClientError as error:
        raise SqlError(SqlFailure(422, "invalid_schema", str(error))) from error


@contextmanager
def _duckdb_errors() -> Iterator[None]:
    import duckdb  # the caller has loaded it

    try:
        yield
    except duckdb.OutOfMemoryException as error:
        message = f"the query needs more memory than it may use: {_first_line(error)}"
        raise SqlError(SqlFailure(400, "limit_exceeded", message)) from None
    except duckdb.Error as error:
        raise SqlError(SqlFailure(400, "invalid_query", str(error).strip())) from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
