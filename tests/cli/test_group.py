"""`penstock group` against a real broker: lag, resets with a dry run, deletion."""

import json
import time
from collections.abc import Iterator

import pytest
import typer
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from typer.testing import CliRunner

from penstock.cli.group import read_duration_s, read_time_ms
from penstock.cli.main import build
from penstock.testing.embedded import EmbeddedBroker


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        yield broker.bootstrap


def group(bootstrap: str, *words: str) -> tuple[int, str, str]:
    """Status, output and errors of one command."""
    result = CliRunner().invoke(build(["group"]), ["group", *words, "--bootstrap", bootstrap])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def fill(bootstrap: str, topic: str, *, old: int, new: int) -> int:
    """Write records of an hour ago and of now; returns a time in between."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(10)
    producer = Producer({"bootstrap.servers": bootstrap})
    now_ms = int(time.time() * 1000)
    for number in range(old + new):
        at = now_ms - 3_600_000 if number < old else now_ms
        producer.produce(topic, str(number), timestamp=at)
    assert producer.flush(10) == 0
    return now_ms - 1_800_000


def commit(bootstrap: str, name: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def test_lag_is_shown_in_records_and_in_seconds(bootstrap: str) -> None:
    fill(bootstrap, "lagging", old=3, new=2)
    commit(bootstrap, "slow", "lagging", 1)
    status, output, _ = group(bootstrap, "describe", "slow", "--json")
    (row,) = json.loads(output)["partitions"]
    assert status == 0
    assert (row["committed"], row["end"], row["records"]) == (1, 5, 4)
    assert 3590 < row["seconds"] < 3700
    commit(bootstrap, "slow", "lagging", 5)
    (row,) = json.loads(group(bootstrap, "describe", "slow", "--json")[1])["partitions"]
    assert (row["records"], row["seconds"]) == (0, 0.0)
    assert "lag: 0 records" in group(bootstrap, "describe", "slow")[1]


def test_partitions_without_a_commit_are_described_too(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("wide", 3, 1)])["wide"].result(10)
    commit(bootstrap, "partly", "wide", 0)
    description = json.loads(group(bootstrap, "describe", "partly", "--json")[1])
    rows = [
        (row["partition"], row["committed"], row["records"]) for row in description["partitions"]
    ]
    assert rows == [(0, 0, 0), (1, None, None), (2, None, None)]
    assert (
        "not counted, because they have no commit: 2 partitions"
        in group(bootstrap, "describe", "partly")[1]
    )


def test_a_reset_is_a_dry_run_unless_executed(bootstrap: str) -> None:
    between = fill(bootstrap, "rewound", old=3, new=2)
    commit(bootstrap, "mover", "rewound", 4)

    def moved(*words: str) -> tuple[int, int]:
        status, output, errors = group(bootstrap, "reset", "mover", *words, "--json")
        assert status == 0, errors
        (row,) = json.loads(output)["partitions"]
        return row["from"], row["to"]

    assert moved("--to-earliest") == (4, 0)
    assert moved("--to-offset", "99") == (4, 5)  # the first was a dry run, so it is still at 4
    assert moved("--to-time", str(between), "--execute") == (4, 3)
    assert moved("--by-duration", "2h", "--execute") == (3, 0)
    assert moved("--to-latest", "--topic", "rewound:0", "--execute") == (0, 5)
    assert moved("--to-offset", "2", "--execute") == (5, 2)
    _, output, _ = group(bootstrap, "reset", "mover", "--to-latest")
    assert "Nothing was changed" in output


def test_a_group_with_members_is_neither_reset_nor_deleted(bootstrap: str) -> None:
    fill(bootstrap, "busy", old=0, new=1)
    settings = {"bootstrap.servers": bootstrap, "group.id": "live", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe(["busy"])
    while consumer.poll(0.2) is None:
        continue
    consumer.commit(asynchronous=False)
    status, _, errors = group(bootstrap, "reset", "live", "--to-earliest", "--execute")
    assert status == 1
    assert "stop its consumers first" in errors
    status, _, errors = group(bootstrap, "delete", "live")
    assert (status, "live: " in errors) == (1, True)
    described = json.loads(group(bootstrap, "describe", "live", "--json")[1])
    assert [member["partitions"] for member in described["members"]] == [1]
    assert described["state"] == "stable"
    consumer.close()
    assert group(bootstrap, "delete", "live")[:2] == (0, "deleted live\n")
    assert "live" not in [row["group"] for row in json.loads(group(bootstrap, "list", "--json")[1])]


def test_a_missing_group_is_reported(bootstrap: str) -> None:
    status, _, errors = group(bootstrap, "describe", "missing")
    assert (status, "group 'missing' does not exist" in errors) == (1, True)
    assert group(bootstrap, "reset", "missing", "--to-latest")[0] == 1
    assert group(bootstrap, "reset", "missing")[0] == 2
    assert group(bootstrap, "reset", "missing", "--to-latest", "--to-earliest")[0] == 2


def test_times_and_durations_are_read() -> None:
    assert read_time_ms("1700000000000") == 1700000000000
    assert read_time_ms("2023-11-14T22:13:20+00:00") == 1700000000000
    assert read_duration_s("1h30m") == 5400
    for bad in ("soon", "5", "1h x"):
        with pytest.raises(typer.BadParameter):
            read_duration_s(bad)
