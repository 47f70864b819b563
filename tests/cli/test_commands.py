"""`penstock topic`, `produce` and `consume` against a real broker."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner, Result

from penstock.cli.main import COMMANDS, build
from penstock.testing.embedded import EmbeddedBroker


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        yield broker.bootstrap


class CommandResult:
    """Status and output of a command."""

    def __init__(self, result: Result) -> None:
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        self.status = result.exit_code
        self.out = result.stdout
        self.error = result.stderr


def penstock(*words: str, to: str | None = None, given: bytes = b"") -> CommandResult:
    bootstrap = [] if to is None else ["--bootstrap", to]
    return CommandResult(
        CliRunner().invoke(build(list(COMMANDS)), [*words, *bootstrap], input=given)
    )


def test_a_topic_is_created_altered_described_and_deleted(bootstrap: str) -> None:
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


def test_internal_topics_are_listed_only_with_internal(bootstrap: str) -> None:
    names = {"_schemas", "_schemas-usage", "_mine"}
    penstock("topic", "create", *names, to=bootstrap)
    for words, shown in (((), {"_mine"}), (("--internal",), names)):
        listed = json.loads(penstock("topic", "list", *words, "--json", to=bootstrap).out)
        assert {row["topic"] for row in listed} & names == shown


def test_a_refused_topic_is_reported_with_the_reason(bootstrap: str) -> None:
    penstock("topic", "create", "taken", to=bootstrap)
    again = penstock("topic", "create", "taken", to=bootstrap)
    assert (again.status, again.error) == (1, "taken: Topic 'taken' already exists.\n")
    assert penstock("topic", "create", "taken", "--if-not-exists", to=bootstrap).status == 0
    bad = penstock("topic", "create", "bad", "-c", "nope=1", "--json", to=bootstrap)
    assert bad.status == 1
    assert json.loads(bad.out)[0]["code"] == "INVALID_CONFIG"


def test_lines_are_sent_as_messages_and_printed_again(bootstrap: str) -> None:
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
    sent = penstock(
        "produce", "second", "--from-json", "--json", to=bootstrap, given=copied.out.encode()
    )
    assert [json.loads(line)["offset"] for line in sent.out.splitlines()] == [0, 1, 2]
    again = penstock("consume", "second", "-e", "--json", to=bootstrap).out.splitlines()
    assert [json.loads(line)["value"] for line in again] == [row["value"] for row in rows]


def test_a_copied_topic_keeps_its_timestamps(bootstrap: str) -> None:
    first, second = 1_700_000_000_000, 1_700_000_005_000
    given = "".join(f'{{"value": "v", "timestamp": {at}}}\n' for at in (first, second)).encode()
    penstock("produce", "timed", "--from-json", to=bootstrap, given=given)
    copied = penstock("consume", "timed", "-e", "--json", to=bootstrap).out
    penstock("produce", "timed-copy", "--from-json", to=bootstrap, given=copied.encode())
    seen = penstock("consume", "timed-copy", "-e", "-f", "%T\\n", to=bootstrap).out
    assert seen.split() == [str(first), str(second)]
    for topic in ("timed", "timed-copy"):  # a time between the two is the same offset in both
        moment = ("--to-time", "2023-11-14T22:13:22+00:00", "--execute", "--json")
        reset = penstock("group", "reset", f"g-{topic}", "--topic", topic, *moment, to=bootstrap)
        assert [row["to"] for row in json.loads(reset.out)["partitions"]] == [1]


def test_a_key_has_the_same_partition_as_in_java_clients(bootstrap: str) -> None:
    hashes = {  # results of Utils.murmur2 of kafka-clients
        "a": -1563381124, "ab": 316155434, "abc": 479470107, "21": -973932308,
        "foobar": -790332482,
    }  # fmt: skip
    penstock("topic", "create", "keyed", "-p", "7", to=bootstrap)
    given = "".join(f"{key}:x\n" for key in hashes).encode()
    penstock("produce", "keyed", "-K", ":", to=bootstrap, given=given)
    seen = penstock("consume", "keyed", "-e", "-f", "%k %p\\n", to=bootstrap).out.split()
    partitions = dict(zip(seen[::2], map(int, seen[1::2]), strict=True))
    assert partitions == {key: (hashed & 0x7FFFFFFF) % 7 for key, hashed in hashes.items()}


def test_a_value_may_be_a_json_object(bootstrap: str) -> None:
    given = b'{"key": "berlin", "value": {"cents": 1250}, "headers": [["from", "shop"]]}\n'
    assert penstock("produce", "objects", "--from-json", to=bootstrap, given=given).status == 0
    seen = penstock("consume", "objects", "-e", "-f", "%k %v %h\\n", to=bootstrap)
    assert seen.out == 'berlin {"cents": 1250} from=shop\n'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"no json", "line 2 is not JSON: Expecting value at column 1"),
        (b'"\xff"', "line 2 is not JSON: it is not UTF-8"),
        (b"[1]", 'line 2 is not {"key": '),
        (b'{"valeu": "a slip must not become a tombstone"}', 'line 2 is not {"key": '),
        (b'{"value": {"base64": "a"}}', "line 2: value: invalid base64"),
        (b'{"value": "x", "headers": {"a": "b"}}', "line 2: headers: not [[name, value], …]"),
        (b'{"value": "x", "timestamp": "now"}', "line 2 has a timestamp that is not milliseconds"),
        (b'{"value": "x", "timestamp": true}', "line 2 has a timestamp that is not milliseconds"),
        (b'{"value": "x", "timestamp": -2}', "line 2 has a timestamp that is not milliseconds"),
    ],
)
def test_an_invalid_line_is_reported_and_those_before_it_are_sent(
    line: bytes, message: str, bootstrap: str
) -> None:
    given = b'{"value": "right"}\n' + line + b"\n"
    result = penstock("produce", "halfway", "--from-json", to=bootstrap, given=given)
    assert result.status == 1
    assert message in result.error
    assert "1 message to halfway" in result.error


def test_the_size_limit_of_a_message_is_the_topics(bootstrap: str) -> None:
    penstock("topic", "create", "long", "-c", "max.message.bytes=3000000", to=bootstrap)
    assert penstock("produce", "long", to=bootstrap, given=b"x" * 2_000_000).status == 0
    assert len(penstock("consume", "long", "-e", to=bootstrap).out) == 2_000_001
    refused = penstock("produce", "long", to=bootstrap, given=b"x" * 4_000_000)
    assert refused.status == 1
    assert "penstock topic alter long -c max.message.bytes=N" in refused.error


def test_a_negative_offset_counts_in_each_partition(bootstrap: str) -> None:
    penstock("topic", "create", "halves", "-p", "2", to=bootstrap)
    for index in ("0", "1"):
        penstock("produce", "halves", "-p", index, to=bootstrap, given=b"1\n2\n3\n")
    assert (
        penstock("consume", "halves", "-e", "-o", "-2", to=bootstrap).out.split() == ["2", "3"] * 2
    )
    shown = " ".join(penstock("consume", "--help").out.split())
    assert "the last N of each partition" in shown


def test_a_deleted_offset_starts_at_the_first_record(bootstrap: str) -> None:
    penstock("produce", "trimmed", to=bootstrap, given=b"1\n2\n3\n")
    end = TopicPartition("trimmed", 0, 2)
    admin = AdminClient({"bootstrap.servers": bootstrap})  # must outlive its futures
    admin.delete_records([end])[end].result(10)
    assert penstock("consume", "trimmed", "-e", "-o", "1", to=bootstrap).out == "3\n"


def test_messages_that_were_not_printed_come_again_to_the_group(bootstrap: str) -> None:
    lines = [
        f"{number:04}{'x' * 1000}" for number in range(2000)
    ]  # a pipe has space for about sixty
    penstock("produce", "piped", to=bootstrap, given="\n".join(lines).encode())
    command = [sys.executable, "-m", "penstock.cli.main", "consume", "piped", "-g", "pipe"]
    with subprocess.Popen([*command, "-b", bootstrap], stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline().startswith(b"0000")
        reader.stdout.close()
        assert reader.wait(60) == 0
    again = penstock("consume", "piped", "-g", "pipe", "-n", "1", to=bootstrap)
    assert int(again.out[:4]) < 100


def test_a_member_stops_at_the_end_of_its_partitions(bootstrap: str) -> None:
    penstock("topic", "create", "divided", "-p", "2", to=bootstrap)
    settings = {"bootstrap.servers": bootstrap, "group.id": "both"}
    other, stop = Consumer(settings), threading.Event()
    other.subscribe(["divided"])

    def poll() -> None:
        while not stop.is_set():
            other.poll(0.1)

    while not other.assignment():
        other.poll(0.1)
    member = threading.Thread(target=poll)
    member.start()
    command = [sys.executable, "-m", "penstock.cli.main", "consume", "divided", "-e", "-g", "both"]
    try:
        assert subprocess.run([*command, "-b", bootstrap], check=True, timeout=60).returncode == 0
    finally:
        stop.set()
        member.join()
        other.close()


def test_a_group_continues_where_it_stopped(bootstrap: str) -> None:
    penstock("produce", "shared", to=bootstrap, given=b"1\n2\n3\n")
    first = penstock("consume", "shared", "-g", "team", "-n", "2", to=bootstrap)
    second = penstock("consume", "shared", "-g", "team", "-n", "1", to=bootstrap)
    assert (first.out, second.out) == ("1\n2\n", "3\n")


def test_an_unknown_topic_is_reported_with_advice(bootstrap: str) -> None:
    missing = penstock("consume", "nope", "-e", to=bootstrap)
    assert missing.status == 1
    assert "penstock topic create nope" in missing.error


def test_an_unreachable_broker_is_reported_with_advice() -> None:
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
def test_an_invalid_command_line_has_status_two(words: list[str]) -> None:
    assert penstock(*words).status == 2


def test_every_command_has_help() -> None:
    overview = penstock("--help").out
    for name in ("up", "broker", "topic", "produce", "consume", "doctor"):
        assert name in overview
        assert penstock(name, "--help").status == 0
    assert penstock("--version").out.startswith("penstock ")


def test_the_command_runs_as_a_program() -> None:
    command = [sys.executable, "-m", "penstock.cli.main", "--version"]
    assert subprocess.run(command, capture_output=True, check=True).stdout.startswith(b"penstock ")
