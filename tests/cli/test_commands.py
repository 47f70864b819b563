"""Daily work with `penstock topic`, `produce` and `consume` against a real broker."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.main import COMMANDS, build
from penstock.testing.embedded import EmbeddedBroker


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        yield broker.bootstrap


class Said:
    """What a command did."""

    def __init__(self, result: Result) -> None:
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        self.status = result.exit_code
        self.out = result.stdout
        self.error = result.stderr


def penstock(*words: str, to: str | None = None, given: bytes = b"") -> Said:
    reaching = [] if to is None else ["--bootstrap", to]
    return Said(CliRunner().invoke(build(list(COMMANDS)), [*words, *reaching], input=given))


def test_the_life_of_a_topic(bootstrap: str) -> None:
    made = penstock("topic", "create", "life", "-p", "2", "-c", "retention.ms=5", to=bootstrap)
    assert (made.status, made.out) == (0, "created life\n")
    listed = json.loads(penstock("topic", "list", "--json", to=bootstrap).out)
    assert {"topic": "life", "partitions": 2, "replicas": 1} in listed
    changed = penstock(
        "topic", "alter", "life", "-p", "3", "-c", "cleanup.policy=compact",
        "--unset", "retention.ms", to=bootstrap,
    )  # fmt: skip
    assert changed.status == 0
    described = json.loads(penstock("topic", "describe", "life", "--json", to=bootstrap).out)
    assert described["settings"] == {"cleanup.policy": "compact"}
    assert [row["partition"] for row in described["partitions"]] == [0, 1, 2]
    assert "PARTITION" in penstock("topic", "describe", "life", to=bootstrap).out
    assert penstock("topic", "delete", "life", to=bootstrap).out == "deleted life\n"


def test_a_refused_topic_says_why_and_fails(bootstrap: str) -> None:
    penstock("topic", "create", "taken", to=bootstrap)
    again = penstock("topic", "create", "taken", to=bootstrap)
    assert (again.status, again.error) == (1, "taken: Topic 'taken' already exists.\n")
    assert penstock("topic", "create", "taken", "--if-not-exists", to=bootstrap).status == 0
    bad = penstock("topic", "create", "bad", "-c", "nope=1", "--json", to=bootstrap)
    assert bad.status == 1
    assert json.loads(bad.out)[0]["code"] == "INVALID_CONFIG"


def test_lines_become_messages_and_messages_lines(bootstrap: str) -> None:
    sent = penstock(
        "produce", "lines", "-K", ":", "-H", "from=test", to=bootstrap, given=b"a:1\nb:2\nc\n"
    )
    assert (sent.status, sent.error) == (0, "3 messages to lines\n")
    seen = penstock("consume", "lines", "-e", "-f", "%o %k=%v %h\\n", to=bootstrap)
    assert seen.out == "0 a=1 from=test\n1 b=2 from=test\n2 =c from=test\n"
    assert penstock("consume", "lines", "-e", "-o", "-1", to=bootstrap).out == "c\n"
    assert penstock("consume", "lines", "-n", "1", "-o", "1", to=bootstrap).out == "2\n"
    assert penstock("consume", "lines", "-n", "1", "-o", "@0", to=bootstrap).out == "1\n"


def test_a_topic_is_copied_as_json(bootstrap: str) -> None:
    penstock("produce", "first", "-k", "key", "-Z", to=bootstrap, given=b"x\n\n\xff\xfe\n")
    copied = penstock("consume", "first", "-e", "--json", to=bootstrap)
    rows = [json.loads(line) for line in copied.out.splitlines()]
    assert [row["value"] for row in rows] == ["x", None, {"base64": "//4="}]
    told = penstock(
        "produce", "second", "--from-json", "--json", to=bootstrap, given=copied.out.encode()
    )
    assert [json.loads(line)["offset"] for line in told.out.splitlines()] == [0, 1, 2]
    again = penstock("consume", "second", "-e", "--json", to=bootstrap).out.splitlines()
    assert [json.loads(line)["value"] for line in again] == [row["value"] for row in rows]


def test_a_group_goes_on_where_it_was(bootstrap: str) -> None:
    penstock("produce", "shared", to=bootstrap, given=b"1\n2\n3\n")
    first = penstock("consume", "shared", "-g", "team", "-n", "2", to=bootstrap)
    second = penstock("consume", "shared", "-g", "team", "-n", "1", to=bootstrap)
    assert (first.out, second.out) == ("1\n2\n", "3\n")


def test_an_unknown_topic_is_told_with_what_to_do(bootstrap: str) -> None:
    missing = penstock("consume", "nope", "-e", to=bootstrap)
    assert missing.status == 1
    assert "penstock topic create nope" in missing.error


def test_a_broker_that_does_not_answer_is_told_with_what_to_do() -> None:
    for words in (["topic", "list"], ["consume", "t", "-e"], ["produce", "t"]):
        silent = penstock(*words, to="127.0.0.1:1")
        assert silent.status == 3
        assert "penstock up" in silent.error


@pytest.mark.parametrize(
    "words",
    [
        ["topic", "create", "t", "-c", "no-equals-sign"],
        ["topic", "alter", "t"],
        ["up", "--ephemeral", "--dir", "x"],
        ["nonsense"],
    ],
)
def test_what_is_not_understood_is_status_two(words: list[str]) -> None:
    assert penstock(*words).status == 2


def test_every_command_explains_itself() -> None:
    overview = penstock("--help").out
    for name in ("up", "broker", "topic", "produce", "consume", "doctor"):
        assert name in overview
        assert penstock(name, "--help").status == 0
    assert penstock("--version").out.startswith("penstock ")


def test_the_command_is_a_program() -> None:
    command = [sys.executable, "-m", "penstock.cli.main", "--version"]
    assert subprocess.run(command, capture_output=True, check=True).stdout.startswith(b"penstock ")
