"""Invalid command lines, unreachable servers and closed streams: one line that explains it."""

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
    """A server that accepts connections and never responds."""
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
    """The command as a program, with its streams redirected by `line`."""
    command = ["sh", "-c", f'"$@" {line}', "sh", *PENSTOCK, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("words", "message"),
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
        ("consume t -f %v%z", "--format has no field %z"),
        ("quarantine redrive t --reader missing.avsc", "'missing.avsc' does not exist"),
        ("consume t -g team -p 1", "--partition and --group exclude each other"),
        ("consume t -g team -o 3", "use start or end, or `penstock group reset`"),
        ("consume t --group=", "--group needs a name"),
        ("group reset team --to-time 0001-01-01", "neither milliseconds nor a time"),
        ("group reset team --by-duration 99999999999999999d", "is not a duration"),
        ("frame decode t:0:99999999999999999999", "is not topic:partition:offset"),
    ],
)
def test_an_invalid_command_line_is_reported_in_one_line(words: str, message: str) -> None:
    refused = run(*words.split())
    assert refused.exit_code == 2
    assert message in refused.stderr.splitlines()[-1]


# A command of each family that fails, and part of its error. Nothing listens at {closed}.
FAILING = [
    ("topic describe nope -b {bootstrap}", 1, "topic 'nope' does not exist"),
    ("topic list -b {closed}", 3, "cannot connect to"),
    ("topic create t -p -5", 2, "greater than or equal to -1"),
    ("topic list --nope", 2, "No such option: --nope"),
    ("produce nope:x -b {bootstrap}", 1, "is not a valid topic name"),
    ("consume nope -b {bootstrap}", 1, "topic 'nope' does not exist"),
    ("group describe nope -b {bootstrap}", 1, "group 'nope' does not exist"),
    ("group reset team", 2, "pass one of --to-earliest"),
    ("schema get nope -r http://{closed}", 3, "cannot connect to the registry"),
    ("contract plan . -r http://{closed}", 2, "cannot reach the schema registry"),
    ("contract reader list -s s -r http://{closed}", 2, "cannot reach the schema registry"),
    ("frame decode nope:0:0 -b {bootstrap}", 1, "topic 'nope' does not exist"),
    ("quarantine list nope -b {bootstrap}", 1, "nothing was quarantined"),
    ("replay nope", 2, "pass one of --to-topic"),
    ("up --log kafka:{closed}", 3, "cannot connect to"),
    ("broker --set nope=1 --dir {folder}", 1, "nope"),
    ("http --kafka {closed}", 1, ""),
    ("doctor --kafka-port 70000", 2, "less than or equal to 65535"),
    ("warm --nope", 2, "No such option: --nope"),
    ("cluster status -b {closed}", 3, "cannot connect to"),
    ("tx list -b {closed}", 3, "cannot connect to"),
    ("top --once -r http://{closed}", 3, "cannot read http://"),
    ("gen orders t -b {closed}", 3, "cannot connect to"),
    ("lab overhead --nope", 2, "No such option: --nope"),
    ("profile show nope", 1, "there is no profile 'nope'"),
    ("sql select --nope", 2, "No such option: --nope"),
]


@pytest.mark.parametrize(("words", "status", "message"), FAILING, ids=[row[0] for row in FAILING])
def test_an_error_is_json_with_json(
    words: str, status: int, message: str, bootstrap: str, closed: str, tmp_path: Path
) -> None:
    given = words.format(bootstrap=bootstrap, closed=closed, folder=tmp_path)
    refused = run(*given.split(), "--json")
    assert refused.exit_code == status
    (line,) = refused.stdout.splitlines()
    document = json.loads(line)
    assert message in document["error"]
    assert document["status"] == status
    logs = words.split()[0] in ("broker", "http")  # to standard error
    assert (document["error"] in refused.stderr) is logs


def test_every_command_is_among_those_that_fail() -> None:
    assert {row[0].split()[0] for row in FAILING} == set(COMMANDS)


def test_advice_names_options_that_the_command_has(closed: str) -> None:
    advice = run("up", "--log", f"kafka:{closed}").stderr
    assert "--bootstrap" not in advice
    assert "--log kafka:HOST:PORT" in advice
    assert "--bootstrap host:port" in run("topic", "list", "-b", closed).stderr


def test_the_environment_names_broker_and_registry_for_every_command() -> None:
    root: Any = typer.main.get_command(build(list(COMMANDS)))
    commands, options = [("penstock", root)], set()
    while commands:
        path, command = commands.pop()
        commands += [
            (f"{path} {name}", child) for name, child in getattr(command, "commands", {}).items()
        ]
        for option in command.params:
            for name in ("--bootstrap", "--registry"):
                if name in option.opts:
                    options.add((path, name, option.envvar))
    assert ("penstock contract plan", "--registry", "PENSTOCK_REGISTRY") in options
    without = {
        (path, name)
        for path, name, envvar in options
        if envvar is None
        and not path.startswith("penstock lab ")  # it starts its own platform
        and path != "penstock profile create"  # it states them
    }
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
def test_a_server_that_does_not_respond_is_reported_as_such(words: str, silent: str) -> None:
    refused = run(*words.split(), "--bootstrap", silent)
    assert refused.exit_code == 3
    assert f"{silent} accepts connections but does not respond" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("produce two.words:x", "'two.words:x' is not a valid topic name"),
        ("consume two.words:x -e", "'two.words:x' is not a valid topic name"),
        ("topic delete nope", "nope: the topic does not exist"),
        ("produce misused -p 7", "misused has no partition 7; it has 1."),
        ("consume misused -p 7 -e", "misused has no partition 7; it has 1."),
        ("frame decode misused:7:0", "misused has no partition 7; it has 1."),
        ("frame decode nope:0:0", "topic 'nope' does not exist"),
    ],
)
def test_a_missing_topic_or_partition_is_named(words: str, message: str, bootstrap: str) -> None:
    run("topic", "create", "misused", "--if-not-exists", "-p", "1", "--bootstrap", bootstrap)
    refused = run(*words.split(), "--bootstrap", bootstrap)
    assert refused.exit_code == 1
    assert message in refused.stderr


def test_an_invalid_host_name_is_unreachable() -> None:
    assert run("topic", "list", "--bootstrap", "..:9092").exit_code == 3


def test_invalid_partitions_do_not_select_all_of_them(bootstrap: str) -> None:
    run("topic", "create", "wide", "-p", "2", "--bootstrap", bootstrap)
    reset = ("group", "reset", "team", "--to-earliest", "--execute", "--bootstrap", bootstrap)
    for named in ("wide:x", "wide:0,x", "wide:"):
        assert run(*reset, "-t", named).exit_code == 2
    assert run("group", "describe", "team", "--bootstrap", bootstrap).exit_code == 1


def test_decoding_a_record_creates_no_group(bootstrap: str) -> None:
    run("produce", "looked-at", "--bootstrap", bootstrap, given=b"x\n")
    assert run("frame", "decode", "looked-at:0:0", "--bootstrap", bootstrap).exit_code == 0
    groups = json.loads(run("group", "list", "--json", "--bootstrap", bootstrap).stdout)
    assert "penstock-frame" not in [row["group"] for row in groups]


def test_closed_or_full_streams_cause_no_traceback(bootstrap: str) -> None:
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
