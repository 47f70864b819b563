"""`penstock sql`: formats, ranges, and errors in one sentence."""

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from penstock.cli.main import build
from penstock.testing.platform import Platform

pytest.importorskip("duckdb", reason="needs the extra sql")


@pytest.fixture(scope="module")
def plain(penstock: Platform) -> str:
    """A topic of three JSON values."""
    topic = penstock.make_topic("plain")
    producer = Producer({"bootstrap.servers": penstock.bootstrap, "log_level": 0})
    for number in range(3):
        producer.produce(topic, key=f"k{number}", value=json.dumps({"n": number}))
    assert producer.flush(20) == 0
    return topic


def sql(penstock: Platform, *words: str) -> tuple[int, str, str]:
    """Status, output and errors of one command."""
    where = ["--bootstrap", penstock.bootstrap, "--registry", penstock.registry_url]
    result = CliRunner().invoke(build(["sql"]), ["sql", *words, *where])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_rows_are_written_in_every_format(penstock: Platform, plain: str, tmp_path: Path) -> None:
    query = f"select _key, (value ->> 'n')::int as n, [1] as l from \"{plain}\" order by n"
    status, output, _ = sql(penstock, query)
    assert status == 0
    assert output.splitlines()[:2] == ["_key  n  l", "k0    0  [1]"]
    assert sql(penstock, query, "--format", "json")[1].splitlines()[0] == (
        '{"_key":"k0","n":0,"l":[1]}'
    )
    target = tmp_path / "rows.csv"
    assert sql(penstock, query, "--format", "csv", "--output", str(target))[0] == 0
    assert target.read_text().splitlines() == ["_key,n,l", "k0,0,[1]", "k1,1,[1]", "k2,2,[1]"]
    parquet = tmp_path / "rows.parquet"
    assert sql(penstock, query, "--format", "parquet", "--output", str(parquet))[0] == 0
    import pyarrow.parquet as pq

    assert pq.read_table(parquet).column("n").to_pylist() == [0, 1, 2]


def test_a_range_and_limits(penstock: Platform, plain: str) -> None:
    query = f'select count(*) as n from "{plain}"'
    assert sql(penstock, query, "--from", "1")[1].split() == ["n", "2"]
    status, output, errors = sql(penstock, query, "--records", "1")
    assert (status, output.split()) == (0, ["n", "1"])
    assert "1 of 3" in errors
    cut = sql(penstock, f'select _key from "{plain}"', "--rows", "2")
    assert len(cut[1].splitlines()) == 3
    assert "first 2 rows" in cut[2]


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (["selec 1"], 1, "syntax error"),
        (["select * from no_such_topic"], 1, "no_such_topic"),
        (["copy (select 1) to 'x.csv'"], 1, "exactly one SELECT"),
        (["select 1", "--format", "parquet"], 2, "--output"),
        (["select 1", "--from", "noon"], 2, "noon"),
        (["select 1", "--reader", "orders"], 2, "topic=N"),
    ],
)
def test_an_error_is_one_sentence(
    penstock: Platform, words: list[str], status: int, sentence: str
) -> None:
    code, _, errors = sql(penstock, *words)
    assert code == status
    assert sentence in errors
