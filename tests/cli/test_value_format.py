"""`penstock consume` and `produce` with schemas, several topics, patterns and files."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.main import COMMANDS, build
from penstock.client.registry import Registry
from penstock.schemas.model import SchemaText, SchemaType

AVRO = """{"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"},
    {"name": "sum", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9,
        "scale": 2}},
    {"name": "note", "type": ["null", "string"], "default": null}]}"""
PROTOBUF = 'syntax = "proto3"; message Order { int64 id = 1; bytes mark = 2; }'
JSON = '{"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}'
EVENTS = {
    "avro": (SchemaType.AVRO, AVRO, {"id": 7, "sum": "12.50", "note": "für Ada"}),
    "protobuf": (SchemaType.PROTOBUF, PROTOBUF, {"id": 7, "mark": "AP8="}),
    "json": (SchemaType.JSON, JSON, {"id": 7}),
}


def penstock(*words: str, given: str = "") -> Result:
    result = CliRunner().invoke(build(list(COMMANDS)), list(words), input=given.encode())
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def here(bootstrap: str, registry_url: str) -> tuple[str, ...]:
    return "-b", bootstrap, "-r", registry_url


def register(registry: Registry, subject: str, language: SchemaType, text: str) -> None:
    registry.register(subject, SchemaText(language, text))


@pytest.mark.parametrize("name", EVENTS)
def test_values_are_encoded_and_decoded_by_the_schema_of_the_topic(
    name: str, topic: str, registry: Registry, here: tuple[str, ...]
) -> None:
    language, text, event = EVENTS[name]
    register(registry, f"{topic}-value", language, text)
    lines = json.dumps(event) + "\n"
    for words in ((), ("--value-format", name)):
        sent = penstock("produce", topic, *words, *here, given=lines)
        assert (sent.exit_code, sent.stderr) == (0, f"1 message to {topic}\n")
    for words in ((), ("--value-format", name)):
        seen = penstock("consume", topic, "-e", *words, *here).stdout.splitlines()
        assert list(map(json.loads, seen)) == [event, event]
    raw = penstock("consume", topic, "-e", "-n", "1", "--value-format", "raw", *here)
    assert raw.stdout_bytes.startswith(b"\x00")
    other = "json" if name == "avro" else "avro"
    for command in ("produce", "consume"):
        refused = penstock(command, topic, "--value-format", other, *here, given=lines)
        assert refused.exit_code == 1
        assert f"its schema is {language}, not {other.upper()}" in refused.stderr


def test_a_topic_with_schemas_is_copied_as_json(
    topic: str, registry: Registry, here: tuple[str, ...]
) -> None:
    for side, text in (("key", '"long"'), ("value", AVRO)):
        for name in (topic, f"{topic}-copy"):
            register(registry, f"{name}-{side}", SchemaType.AVRO, text)
    given = '7:{"id": 1, "sum": 2, "note": null}\n8:\n'
    assert penstock("produce", topic, "-K", ":", "-Z", *here, given=given).exit_code == 0
    copied = penstock("consume", topic, "-e", "--json", *here).stdout
    rows = [json.loads(line) for line in copied.splitlines()]
    assert [(row["key"], row["value"]) for row in rows] == [
        (7, {"id": 1, "sum": "2.00", "note": None}),
        (8, None),
    ]
    assert penstock("produce", f"{topic}-copy", "--from-json", *here, given=copied).exit_code == 0
    words = ("-e", "--value-format", "raw", "-f", "%k %v\\n", *here)
    first, again = (
        penstock("consume", name, *words).stdout_bytes for name in (topic, f"{topic}-copy")
    )
    assert first[5:] == again[5:]


def test_a_value_that_does_not_fit_is_refused_with_its_line(
    topic: str, registry: Registry, here: tuple[str, ...]
) -> None:
    register(registry, f"{topic}-value", SchemaType.AVRO, AVRO)
    for line, message in (
        ('{"id": "x", "sum": 1}', f"line 2: value: does not fit {topic}-value"),
        ("not json", "line 2 is not JSON"),
    ):
        refused = penstock("produce", topic, *here, given=f'{{"id": 1, "sum": 1}}\n{line}\n')
        assert refused.exit_code == 1
        assert message in refused.stderr
    assert len(penstock("consume", topic, "-e", *here).stdout.splitlines()) == 2


def test_bytes_without_a_schema_stay_as_they_are(topic: str, here: tuple[str, ...]) -> None:
    assert penstock("produce", topic, *here, given='{"id": 1}\nplain\n').exit_code == 0
    assert penstock("consume", topic, "-e", *here).stdout == '{"id": 1}\nplain\n'
    refused = penstock("produce", topic, "--value-format", "avro", *here, given="{}\n")
    assert f"the registry has no subject {topic}-value" in refused.stderr
    refused = penstock("consume", topic, "-e", "--value-format", "avro", *here)
    assert f"{topic}:0:0: no frame that names a schema" in refused.stderr
    shown = penstock("consume", topic, "-n", "1", "--json", "--value-format", "json", *here)
    assert json.loads(shown.stdout)["value"] == {"id": 1}


def test_without_a_registry_framed_values_are_shown_as_they_are(
    topic: str, registry: Registry, here: tuple[str, ...]
) -> None:
    register(registry, f"{topic}-value", SchemaType.JSON, JSON)
    penstock("produce", topic, *here, given='{"id": 1}\n{"id": 2}\n')
    missing = (*here[:2], "-r", "http://127.0.0.1:1")
    shown = penstock("consume", topic, "-e", *missing)
    assert shown.stdout_bytes.endswith(b'{"id":2}\n')
    assert shown.stderr == (
        "penstock: no registry at http://127.0.0.1:1: values are shown as they are\n"
    )
    for command in ("produce", "consume"):
        refused = penstock(command, topic, "--value-format", "json", *missing, given="{}\n")
        assert refused.exit_code == 3
        assert "cannot connect to the registry at http://127.0.0.1:1" in refused.stderr


def test_several_topics_and_patterns_are_read_together(topic: str, here: tuple[str, ...]) -> None:
    for number in (1, 2, 3):
        penstock("produce", f"{topic}-{number}", *here, given=f"from {number}\n")
    two = penstock("consume", f"{topic}-1", f"{topic}-3", "-e", *here)
    assert sorted(two.stdout.splitlines()) == ["from 1", "from 3"]
    matching = penstock("consume", f"^{topic}-[12]$", "-e", "-f", "%t %v\\n", *here)
    assert sorted(matching.stdout.splitlines()) == [f"{topic}-1 from 1", f"{topic}-2 from 2"]
    by_group = penstock("consume", f"^{topic}-.*", "-g", topic, "-n", "3", *here)
    assert sorted(by_group.stdout.splitlines()) == ["from 1", "from 2", "from 3"]
    missing = penstock("consume", f"^{topic}-x", "-e", *here)
    assert missing.stderr == f"penstock: no topic matches ^{topic}-x.\n"
    assert "is not a regular expression" in penstock("consume", "^(", *here).stderr


def test_the_lines_of_a_file_are_sent(topic: str, here: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("a\nb\n")
    assert penstock("produce", topic, str(path), *here).stderr == f"2 messages to {topic}\n"
    assert penstock("consume", topic, "-e", *here).stdout == "a\nb\n"
    assert penstock("produce", topic, str(tmp_path / "none"), *here).exit_code == 2
