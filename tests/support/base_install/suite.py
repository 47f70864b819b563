"""What a base install must do, as a user of it would test it: run by `tests/test_extras.py`.

Not collected by an ordinary run. The interpreter that runs it lacks the libraries of all extras, so
it imports nothing but Penstock and pytest.
"""

import json
import subprocess
import sys
from typing import Any

import pytest

from penstock.client import RegistryRefusedError
from penstock.extras import EXTRAS, MissingExtraError, is_installed, require
from penstock.node.record_inspector import VECTOR_RECORDS_LEAST, Inspector
from penstock.protocol.records import Record, build_batch

SOON_S = 60
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "cents", "type": "long"}]}
JSON_ORDER = {"type": "object", "properties": {"cents": {"type": "integer"}}}
PROTOBUF_ORDER = 'syntax = "proto3"; message Order { int64 cents = 1; }'


@pytest.mark.parametrize("name", EXTRAS)
def test_no_extra_is_installed_here(name: str) -> None:
    assert not is_installed(name)
    with pytest.raises(MissingExtraError, match=rf"install penstock\[{name}\]"):
        require(name)


@pytest.mark.parametrize(("schema", "language"), [(ORDER, "AVRO"), (JSON_ORDER, "JSON")])
def test_single_events_go_round(
    penstock_schema: Any, penstock_producer: Any, penstock_consumer: Any, schema: Any, language: str
) -> None:
    producer = penstock_producer(value=penstock_schema(schema, type=language))
    producer.send({"cents": 1250}, key="berlin").result(SOON_S)
    producer.send_many([{"cents": number} for number in range(100)])
    producer.flush()
    consumer = penstock_consumer()
    cents: list[int] = []
    while len(cents) < 101:
        cents += [event.value["cents"] for event in consumer.take(200, SOON_S)]
    assert cents == [1250, *range(100)]


def test_columns_need_the_extra_arrow(penstock_schema: Any, penstock_consumer: Any) -> None:
    penstock_schema(ORDER)
    with pytest.raises(MissingExtraError, match=r"install penstock\[arrow\]"):
        next(penstock_consumer().arrow_batches())


def test_protobuf_needs_the_extra_protobuf(penstock: Any, penstock_schema: Any) -> None:
    with pytest.raises(RegistryRefusedError, match=r"install penstock\[protobuf\]") as refused:
        penstock_schema(PROTOBUF_ORDER, type="PROTOBUF")
    assert refused.value.code == 50101


def test_the_broker_opens_large_batches() -> None:
    records = [Record(key=None if number == 7 else b"k", value=b"v") for number in range(1000)]
    assert len(records) >= VECTOR_RECORDS_LEAST
    batch = bytearray(build_batch(records))
    facts = Inspector().inspect(batch, earliest=None, latest=None, opened_bytes_max=1 << 20)
    assert list(facts.unkeyed) == [7]


def test_the_command_line_works(penstock: Any, penstock_topic: str) -> None:
    done = command("topic", "list", "--bootstrap", penstock.bootstrap, "--json")
    assert penstock_topic in done.stdout


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_command_names_the_missing_extra(options: tuple[str, ...]) -> None:
    done = command("replay", "orders", "--to-topic", "again", *options, status=1)
    text = json.loads(done.stdout)["error"] if options else done.stderr
    assert "install penstock[spark]" in text
    assert "Traceback" not in done.stderr


def command(*words: str, status: int = 0) -> "subprocess.CompletedProcess[str]":
    """Run `penstock` with these words."""
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *words],
        capture_output=True,
        text=True,
        timeout=SOON_S,
        check=False,
    )
    assert done.returncode == status, done.stderr
    return done
