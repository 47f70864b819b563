"""What is asked wrongly, of the wrong one or with streams that are closed: a line that says so."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from penstock.cli import connect, group, topic
from penstock.cli.main import COMMANDS, build
from penstock.testing.embedded import EmbeddedBroker

PENSTOCK = [sys.executable, "-m", "penstock.cli.main"]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        yield broker.bootstrap


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Somebody who takes connections and never says a word."""
    for module in (group, connect, topic):
        monkeypatch.setattr(module, "WAIT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def closed() -> str:
    """An address of this machine that refuses connections."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{unused.getsockname()[1]}"


def run(*words: str, given: bytes = b"") -> Result:
    result = CliRunner().invoke(build(list(COMMANDS)), words, input=given)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def shell(line: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The command as a program, with its streams as `line` says."""
    command = ["sh", "-c", f'"$@" {line}', "sh", *PENSTOCK, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("broker --log-level LOUD", "'LOUD' is not one of"),
        ("broker --kafka-port 70000", "less than or equal to 65535"),
        ("up --http-port 70000", "less than or equal to 65535"),
        ("doctor --kafka-port 70000", "less than or equal to 65535"),
        ("topic create t -p -5", "greater than or equal to -1"),
        ("topic create t -p 999999999999", "less than or equal to 100000"),
        ("topic alter t -p 0", "greater than or equal to 1"),
        ("topic crate t", "No such command 'crate'. Did you mean 'create'"),
        ("produce t --acks 2", "'2' is not one of 'all', '-1', '1', '0'"),
        ("produce t -z brotli", "'brotli' is not one of"),
        ("produce t --key-separator=", "at least one character"),
        ("produce t -K \\", "escapes are"),
        ("consume t -f \\u20ac", "escapes are"),
        ("consume t -n -1", "greater than or equal to 0"),
        ("consume t -f %v%z", "--format has no %z"),
        ("quarantine redrive t --reader missing.avsc", "'missing.avsc' does not exist"),
        ("consume t -g team -p 1", "--partition and --group exclude each other"),
        ("consume t -g team -o 3", "`penstock group reset` moves a group"),
        ("consume t --group=", "--group needs a name"),
        ("group reset team --to-time 0001-01-01", "neither milliseconds nor a time"),
        ("group reset team --by-duration 99999999999999999d", "is not a duration"),
        ("frame decode t:0:99999999999999999999", "is not topic:partition:offset"),
    ],
)
def test_what_is_not_understood_is_one_line_that_can_be_searched_for(words: str, said: str) -> None:
    refused = run(*words.split())
    assert refused.exit_code == 2
    assert said in refused.stderr.splitlines()[-1]


# A command of each family that fails, and part of its error. Nothing listens at {closed}.
FAILING = [
    ("topic describe nope -b {bootstrap}", 1, "there is no topic 'nope'"),
    ("topic list -b {closed}", 3, "nobody answers at"),
    ("topic create t -p -5", 2, "greater than or equal to -1"),
    ("topic list --nope", 2, "No such option: --nope"),
    ("produce nope:x -b {bootstrap}", 1, "cannot be a topic"),
    ("consume nope -b {bootstrap}", 1, "there is no topic 'nope'"),
    ("group describe nope -b {bootstrap}", 1, "there is no group 'nope'"),
    ("group reset team", 2, "say where to"),
    ("schema get nope -r http://{closed}", 3, "cannot connect to the registry"),
    ("contract plan . -r http://{closed}", 2, "could not be asked"),
    ("contract reader list -s s -r http://{closed}", 2, "could not be asked"),
    ("frame decode nope:0:0 -b {bootstrap}", 1, "there is no topic 'nope'"),
    ("quarantine list nope -b {bootstrap}", 1, "nothing was ever put into quarantine"),
    ("replay nope", 2, "say where to"),
    ("up --log kafka:{closed}", 3, "nobody answers at"),
    ("broker --set nope=1 --dir {folder}", 1, "nope"),
    ("http --kafka {closed}", 1, ""),
    ("doctor --kafka-port 70000", 2, "less than or equal to 65535"),
]


@pytest.mark.parametrize(("words", "status", "said"), FAILING, ids=[row[0] for row in FAILING])
def test_an_error_is_json_with_json(
    words: str, status: int, said: str, bootstrap: str, closed: str, tmp_path: Path
) -> None:
    given = words.format(bootstrap=bootstrap, closed=closed, folder=tmp_path)
    refused = run(*given.split(), "--json")
    assert refused.exit_code == status
    (line,) = refused.stdout.splitlines()
    document = json.loads(line)
    assert said in document["error"]
    assert document["status"] == status
    serves = words.split()[0] in ("broker", "http")  # their log is on standard error
    assert (document["error"] in refused.stderr) is serves


def test_every_family_of_commands_fails_as_json() -> None:
    assert {row[0].split()[0] for row in FAILING} == set(COMMANDS)


def test_advice_names_options_that_the_command_has(closed: str) -> None:
    advice = run("up", "--log", f"kafka:{closed}").stderr
    assert "--bootstrap" not in advice
    assert "--log kafka:HOST:PORT" in advice
    assert "--bootstrap host:port" in run("topic", "list", "-b", closed).stderr


def test_the_environment_names_broker_and_registry_for_every_command() -> None:
    root: Any = typer.main.get_command(build(list(COMMANDS)))
    commands, found = [("penstock", root)], set()
    while commands:
        path, command = commands.pop()
        commands += [
            (f"{path} {name}", one) for name, one in getattr(command, "commands", {}).items()
        ]
        for option in command.params:
            for name in ("--bootstrap", "--registry"):
                if name in option.opts:
                    found.add((path, name, option.envvar))
    assert ("penstock contract plan", "--registry", "PENSTOCK_REGISTRY") in found
    without = {(path, name) for path, name, envvar in found if envvar is None}
    assert without == {("penstock contract check", "--registry")}, "as docs/cli.md says"


@pytest.mark.parametrize(
    "words",
    [
        "topic list",
        "topic create t",
        "topic describe t",
        "topic alter t -p 3",
        "topic delete t",
        "group list",
        "group describe team",
        "group delete team",
    ],
)
def test_a_server_that_never_answers_is_told_from_none(words: str, silent: str) -> None:
    refused = run(*words.split(), "--bootstrap", silent)
    assert refused.exit_code == 3
    assert f"{silent} is there and does not answer" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("produce two.words:x", "'two.words:x' cannot be a topic"),
        ("consume two.words:x -e", "'two.words:x' cannot be a topic"),
        ("topic delete nope", "nope: there is no such topic"),
        ("produce misused -p 7", "misused has no partition 7; it has 1."),
        ("consume misused -p 7 -e", "misused has no partition 7; it has 1."),
        ("frame decode misused:7:0", "misused has no partition 7; it has 1."),
        ("frame decode nope:0:0", "there is no topic 'nope'"),
    ],
)
def test_what_is_not_there_is_named(words: str, said: str, bootstrap: str) -> None:
    run("topic", "create", "misused", "--if-not-exists", "-p", "1", "--bootstrap", bootstrap)
    refused = run(*words.split(), "--bootstrap", bootstrap)
    assert refused.exit_code == 1
    assert said in refused.stderr


def test_a_host_that_no_name_can_be_is_nobody() -> None:
    assert run("topic", "list", "--bootstrap", "..:9092").exit_code == 3


def test_partitions_that_are_no_numbers_do_not_come_to_mean_all(bootstrap: str) -> None:
    run("topic", "create", "kept", "-p", "2", "--bootstrap", bootstrap)
    reset = ("group", "reset", "team", "--to-earliest", "--execute", "--bootstrap", bootstrap)
    for named in ("kept:x", "kept:0,x", "kept:"):
        assert run(*reset, "-t", named).exit_code == 2
    assert run("group", "describe", "team", "--bootstrap", bootstrap).exit_code == 1


def test_to_look_at_a_record_leaves_no_group(bootstrap: str) -> None:
    run("produce", "looked-at", "--bootstrap", bootstrap, given=b"x\n")
    assert run("frame", "decode", "looked-at:0:0", "--bootstrap", bootstrap).exit_code == 0
    groups = json.loads(run("group", "list", "--json", "--bootstrap", bootstrap).stdout)
    assert "penstock-frame" not in [row["group"] for row in groups]


def test_streams_that_are_closed_or_full_are_no_traceback(bootstrap: str) -> None:
    run("produce", "streams", "--bootstrap", bootstrap, given=b"x\n")
    read = ("consume", "streams", "-e", "--bootstrap", bootstrap)
    nothing = shell("<&-", "produce", "streams", "--bootstrap", bootstrap)
    assert (nothing.returncode, nothing.stderr) == (0, "0 messages to streams\n")
    closed = shell(">&-", *read)
    assert (closed.returncode, closed.stderr) == (0, "")
    full = shell(">/dev/full", *read)
    assert (full.returncode, full.stderr) == (1, "penstock: [Errno 28] No space left on device\n")
    enough = shell("--json | true", "topic", "list", "--bootstrap", bootstrap)
    assert enough.stderr == ""
