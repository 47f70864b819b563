"""`penstock frame decode` on hex, files, standard input and records of a topic."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.main import COMMANDS, build
from penstock.client.producer import Producer
from penstock.client.registry import Registry
from penstock.schemas.model import SchemaType
from penstock.serde.contract import Contract, Form

PROTO = 'syntax = "proto3"; message A {} message B { string name = 1; }'


def decode(*words: str, given: bytes = b"") -> Result:
    result = CliRunner().invoke(build(list(COMMANDS)), ["frame", "decode", *words], input=given)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_every_byte_is_explained(tmp_path: Path) -> None:
    lines = decode("000000002a0202616263", "--type", "PROTOBUF").stdout.splitlines()
    assert lines[0].startswith("00000000  00 ")
    assert lines[0].endswith("magic 0: an id follows")
    assert lines[1].endswith("schema id 42")
    assert lines[2].endswith("message indexes [1]")
    assert lines[3].startswith("00000007  61 62 63 ")
    assert lines[3].endswith("|abc             |  payload, 3 bytes")
    path = tmp_path / "record"
    path.write_bytes(bytes.fromhex("000000002a") + b"x" * 40)
    assert len(decode(str(path)).stdout.splitlines()) == 5
    assert decode("-", given=b"000000002a").stdout == decode("000000002a").stdout
    assert decode("-", given=b"\x00\x00\x00\x00\x2a").stdout == decode("000000002a").stdout


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("7b7d", "not a frame: starts with byte 0x7b"),
        ("0000", "ends inside the schema id"),
        ("000000002a01", "no message indexes"),
    ],
)
def test_bytes_without_a_frame_are_shown_with_the_reason(content: str, reason: str) -> None:
    assert reason in decode(content, "--type", "PROTOBUF").stdout


def test_an_invalid_source_has_status_two() -> None:
    assert decode("nonsense").exit_code == 2
    assert decode("a:b:c").exit_code == 2


def test_a_record_of_a_topic_is_decoded_with_its_schema(
    bootstrap: str, registry: Registry, registry_url: str, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    value = Contract(PROTO, SchemaType.PROTOBUF, message="B")
    key = Contract('"string"', form=Form.HEADER)
    with Producer(bootstrap, topic, registry=registry, value=value, key=key) as producer:
        producer.send({"name": "x"}, key="k").result(30)
        producer.send(None).result(30)
    connection = ("-b", bootstrap, "-r", registry_url)
    text = decode(f"{topic}:0:0", *connection).stdout
    assert "message indexes [1]" in text
    assert "decoded: {'name': 'x'}" in text
    document = json.loads(decode(f"{topic}:0:0", "--key", "--json", *connection).stdout)
    assert document["decoded"] == "k"
    assert document["parts"][1]["meaning"].startswith("schema GUID")
    assert "is null" in decode(f"{topic}:0:1", *connection).stderr
    assert "no record at" in decode(f"{topic}:0:99", *connection).stderr
