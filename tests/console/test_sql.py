"""SQL over topics: fields as columns, limits that hold, and a query that reaches nothing else."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import msgspec
import pytest
from confluent_kafka import Producer

from penstock.console.routes.sql_routes import field_names
from penstock.console.sql.run_query import SqlError, run_query
from penstock.console.sql.sql_request import SqlBody, SqlResult
from penstock.node.http_process import HttpOptions
from penstock.node.supervisor import HttpProcess
from penstock.schemas.model import SchemaText, SchemaType
from penstock.serde.contract import Contract
from penstock.serde.serializers import Serializer
from penstock.testing.platform import Platform
from tests.console.conftest import Write

pytest.importorskip("duckdb", reason="needs the extra sql")
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "cents", "type": "long"},
            {"name": "city", "type": "string"},
            {"name": "lines", "type": {"type": "array", "items": "string"}, "default": []},
        ],
    }
)


@pytest.fixture(scope="module")
def orders(penstock: Platform) -> str:
    """A topic of ten orders and one record that cannot be read."""
    topic = penstock.make_topic("orders", partitions=2)
    serializer = Serializer(penstock.registry, topic, Contract(ORDER, type=SchemaType.AVRO))
    producer = Producer({"bootstrap.servers": penstock.bootstrap, "log_level": 0})
    for number in range(10):
        order = {"cents": number, "city": ("berlin", "paris")[number % 2], "lines": ["a"]}
        producer.produce(
            topic,
            key=f"k{number}",
            value=serializer.serialize(order).content,
            partition=number % 2,
            timestamp=1_700_000_000_000 + number * 1000,
        )
    producer.produce(topic, key="bad", value=b"\x00\x00\x00\x00\x01\xff", partition=0)
    assert producer.flush(20) == 0
    return topic


Run: TypeAlias = Callable[..., SqlResult]


@pytest.fixture
def run(penstock: Platform) -> Run:
    """Runs a query in this process, as a worker does."""

    def run_here(query: str, **more: Any) -> SqlResult:
        if "from_" in more:
            more["from"] = more.pop("from_")
        body = msgspec.convert({"query": query, **more}, SqlBody)
        kafka = {"bootstrap.servers": penstock.bootstrap}
        return run_query(kafka, penstock.registry_url, body)

    return run_here


def test_fields_are_columns_and_records_are_rows(run: Run, orders: str) -> None:
    query = (
        f'select city, count(*) as n, sum(cents)::bigint as cents from "{orders}" '
        "where _error is null group by city order by city"
    )
    result = run(query)
    assert [column["name"] for column in result.columns] == ["city", "n", "cents"]
    assert result.rows == [["berlin", 5, 20], ["paris", 5, 25]]
    assert result.scanned == {orders: "11 of 11"}
    assert result.truncated is False


def test_a_record_has_its_place_and_its_error(run: Run, orders: str) -> None:
    query = f"select _key, _partition, _offset, cents, _error from \"{orders}\" where _key = 'bad'"
    ((key, partition, offset, cents, error),) = run(query).rows
    assert (key, partition, offset, cents) == ("bad", 0, 5, None)
    assert error
    times = run(f'select min(_timestamp) from "{orders}"')
    assert times.rows[0][0].startswith("2023-11-14T22:13:20")


def test_a_range_by_time_or_offset_and_a_chosen_reader(run: Run, orders: str) -> None:
    query = f'select count(*) from "{orders}"'
    since = run(query, from_={"time": "1700000005000"}, until={"time": "1700000008000"})
    assert since.rows == [[3]]
    assert run(query, from_={"offset": 3}).rows == [[5]]
    assert run(query, reader={orders: 1}).rows == [[11]]
    with pytest.raises(SqlError, match="version 9"):
        run(query, reader={orders: 9})


def test_limits_cut_the_result_and_what_is_read(run: Run, orders: str) -> None:
    cut = run(f'select * from "{orders}"', limits={"rows": 2})
    assert (len(cut.rows), cut.truncated) == (2, True)
    less = run(f'select count(*) from "{orders}"', limits={"records": 4})
    assert (less.rows, less.truncated) == ([[4]], True)
    assert less.scanned == {orders: "4 of 11"}
    small = run(f'select repeat(city, 1000) from "{orders}"', limits={"result_bytes": 1})
    assert small.truncated is True


def test_bytes_are_limited_as_decoded_not_as_stored(
    run: Run, penstock: Platform, write: Write
) -> None:
    topic = penstock.make_topic("compressed", partitions=2, settings={"compression.type": "zstd"})
    for partition in range(2):
        write(topic, [("k", "x" * 1000)] * 3_000, partition)
    whole = run(f'select count(*) from "{topic}"')
    assert (whole.rows, whole.truncated) == ([[6_000]], False)
    part = run(f'select count(*) from "{topic}"', limits={"scan_bytes": 2_000_000})
    assert part.truncated is True
    assert part.rows == [[3_000]]


def test_limits_on_what_is_read_are_of_all_topics_together(
    run: Run, penstock: Platform, write: Write
) -> None:
    small, large, larger = (penstock.make_topic(stem) for stem in ("small", "large", "larger"))
    for topic, count in ((small, 2), (large, 40), (larger, 60)):
        write(topic, [("k", "v" * 100)] * count)
    tables = [f"select '{topic}' as name from \"{topic}\"" for topic in (larger, small, large)]
    query = f"select count(*) from ({' union all '.join(tables)})"
    cut = run(query, limits={"records": 42})
    assert (cut.rows, cut.truncated) == ([[42]], True)
    assert cut.scanned == {small: "2 of 2", large: "20 of 40", larger: "20 of 60"}
    # A chunk is read whole, so each topic with a share of the bytes is; without one it is not.
    none_left = run(query, limits={"scan_bytes": 1})
    assert none_left.scanned == {small: "0 of 2", large: "0 of 40", larger: "60 of 60"}
    assert run(query).rows == [[102]]


def test_values_without_a_schema_are_text(run: Run, penstock: Platform, write: Write) -> None:
    topic = penstock.make_topic("plain")
    write(topic, [("a", '{"n": 9007199254740993}'), ("b", None)])
    result = run(f"select value ->> 'n', (value ->> 'n')::bigint from \"{topic}\"")
    assert result.rows == [["9007199254740993", "9007199254740993"], [None, None]]
    empty = penstock.make_topic("empty")
    assert run(f'select * from "{empty}"').rows == []


@pytest.mark.parametrize(
    "query",
    [
        "select * from read_csv('/etc/passwd')",
        "select * from read_text('/etc/hostname')",
        "copy (select 1) to '/tmp/penstock-sql.csv'",
        "attach '/tmp/penstock-sql.db'",
        "install httpfs",
        "set enable_external_access = true",
        "pragma memory_limit='10GB'",
        "create table t as select 1",
        "select 1; select 2",
        "select * from request",
        "selec 1",
    ],
)
def test_nothing_but_a_select_over_topics_is_run(run: Run, query: str) -> None:
    with pytest.raises(SqlError) as refused:
        run(query)
    assert (refused.value.failure.status, refused.value.failure.code) == (400, "invalid_query")


def test_a_query_runs_in_a_worker(http: httpx.Client, orders: str) -> None:
    answer = http.post("/sql", json={"query": f'select count(*) as n from "{orders}"'}, timeout=60)
    assert answer.status_code == 200, answer.text
    document = answer.json()
    assert document["rows"] == [[11]]
    assert document["columns"] == [{"name": "n", "type": "BIGINT"}]
    refused = http.post("/sql", json={"query": "selec 1"}, timeout=60)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_query")
    assert http.post("/sql", json={"query": ""}).status_code == 400


def test_a_query_is_cancelled_and_one_that_takes_too_long_is_stopped(http: httpx.Client) -> None:
    endless = "select count(*) from range(1000000000000) a, range(1000000) b"
    answers: list[httpx.Response] = []

    def ask() -> None:
        body = {"query": endless, "id": "endless"}
        answers.append(httpx.post(f"{http.base_url}/sql", json=body, timeout=60))

    thread = threading.Thread(target=ask)
    thread.start()
    deadline = time.monotonic() + 30
    while http.delete("/sql/endless").status_code != 204:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    thread.join(30)
    assert answers[0].status_code == 409
    assert answers[0].json()["error"]["code"] == "query_cancelled"
    assert http.delete("/sql/endless").status_code == 404
    late = http.post("/sql", json={"query": endless, "limits": {"seconds": 0.5}}, timeout=60)
    assert (late.status_code, late.json()["error"]["code"]) == (408, "query_timeout")


def test_memory_is_limited(run: Run) -> None:
    with pytest.raises(SqlError) as refused:
        run("select list(i) from range(100000000) t(i)", limits={"memory_mb": 16})
    assert refused.value.failure.code == "limit_exceeded"


def test_tables_are_listed_with_columns(http: httpx.Client, orders: str) -> None:
    deadline = time.monotonic() + 30
    tables: dict[str, list[str]] = {}
    while orders not in tables and time.monotonic() < deadline:
        rows = http.get("/sql/tables").json()["tables"]
        tables = {row["name"]: row["columns"] for row in rows}
        time.sleep(0.2)
    assert tables[orders][:3] == ["cents", "city", "lines"]


@pytest.mark.parametrize(
    ("kind", "text", "names"),
    [
        (SchemaType.AVRO, ORDER, ["cents", "city", "lines"]),
        (SchemaType.AVRO, '"string"', ["value"]),
        (SchemaType.AVRO, '{"type": "string"}', ["value"]),
        (SchemaType.JSON, '{"properties": {"a": {}}}', ["a"]),
        (SchemaType.JSON, "true", ["value"]),
        (SchemaType.PROTOBUF, 'syntax = "proto3";', []),
    ],
)
def test_fields_are_named_without_reading_records(
    kind: SchemaType, text: str, names: list[str]
) -> None:
    assert field_names(SchemaText(kind, text)) == names


def test_duckdb_is_not_loaded_by_the_server(penstock: Platform) -> None:
    process = HttpProcess()
    prefix = penstock.name("no-duckdb")
    options = HttpOptions(
        penstock.bootstrap, http_port=0, log_level="WARNING", group=prefix, topic=f"_{prefix}"
    )
    process.configure(options)
    try:
        with httpx.Client(base_url=str(process.wait_ready()["http"]), timeout=60) as server:
            for path in ("/console", "/console/static/views/sql.js", "/sql/tables"):
                assert server.get(path).status_code == 200
            answer = server.post("/sql", json={"query": "select 42"})
            assert answer.json()["rows"] == [[42]]
        files = Path(f"/proc/{process.pid}/maps").read_text()
        assert "libpython" in files or "python" in files
        assert "duckdb" not in files
    finally:
        process.stop()
