"""`penstock contract …` as people and builds run it."""

import json
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from penstock.cli.contract import app, show_plan
from penstock.gate.change_plan import ChangePlan
from penstock.node.http_process import HttpOptions, command_line
from penstock.testing.embedded import EmbeddedBroker

READY_S = 60
V1 = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
V2 = V1.replace("]}", ',{"name":"note","type":"string","default":""}]}')
BREAKING = V1.replace("]}", ',{"name":"note","type":"string"}]}')


class Ran:
    """Output and status of a command."""

    def __init__(self, *arguments: str) -> None:
        result = CliRunner().invoke(app, list(arguments))
        assert result.exception is None or isinstance(result.exception, SystemExit)
        self.status = result.exit_code
        self.out = result.stdout
        self.err = result.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    contracts = tmp_path / "contracts"
    (contracts / "orders-value").mkdir(parents=True)
    (contracts / "orders-value" / "v1.avsc").write_text(V1)
    return contracts


@pytest.fixture(scope="module")
def registry_url() -> Iterator[str]:
    """A registry in a process of its own, over a broker in another."""
    with EmbeddedBroker() as broker:
        options = HttpOptions(broker.bootstrap, http_port=0, log_level="WARNING")
        process = subprocess.Popen(
            command_line(options), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdin is not None
        readable, _, _ = select.select([process.stdout], [], [], READY_S)
        started = json.loads(process.stdout.readline()) if readable else {}
        try:
            yield str(started["http"])
        finally:
            process.terminate()
            process.wait(20)
            process.stdin.close()
            process.stdout.close()


def test_exit_status_0_is_compatible_and_1_is_breaking(folder: Path) -> None:
    second = folder / "orders-value" / "v2.avsc"
    second.write_text(V2)
    assert Ran("check", "--proposed", str(folder)).status == 0
    second.write_text(BREAKING)
    ran = Ran("check", "--proposed", str(folder))
    assert ran.status == 1
    assert "counter-example (version 1 writes, the proposed schema reads)" in ran.out
    assert "allowed by NONE, FORWARD, FORWARD_TRANSITIVE" in ran.out
    assert "consumers first" in ran.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--proposed", "nowhere.avsc"), "does not exist"),
        (("--proposed", "{new}"), "--subject"),
        (("--proposed", "{new}", "-s", "x", "-r", "localhost:1"), "http://host:port"),
        (("--proposed", "{new}", "-s", "x", "-r", "http://127.0.0.1:9"), "Is it running"),
        (("--proposed", "{new}", "-s", "x", "-r", "http://x", "-c", "."), "not both"),
        (("--proposed", "{new}", "-s", "x", "-c", "{folder}", "--reference", "a"), "NAME=SUBJECT"),
        (
            ("--proposed", "{new}", "-s", "x", "-c", "{folder}", "--against-topic", "t"),
            "--registry",
        ),
    ],
)
def test_exit_status_2_means_not_checked_and_gives_advice(
    arguments: tuple[str, ...], message: str, folder: Path
) -> None:
    new = folder.parent / "new.avsc"
    new.write_text(V2)
    ran = Ran("check", *(one.format(new=new, folder=folder) for one in arguments))
    assert ran.status == 2
    assert message in ran.out + ran.err


def test_every_format_is_valid(folder: Path) -> None:
    (folder / "orders-value" / "v2.avsc").write_text(BREAKING)
    output = {
        name: Ran("check", "-p", str(folder), "--format", name).out
        for name in ("text", "json", "github", "junit")
    }
    assert output["text"].startswith("orders-value: BREAKING under BACKWARD")
    assert json.loads(output["json"])["results"][0]["status"] == "breaking"
    assert output["github"].startswith("::error file=")
    assert ElementTree.fromstring(output["junit"]).get("failures") == "1"


def test_events_are_left_out_with_no_events(folder: Path) -> None:
    (folder / "orders-value" / "v2.avsc").write_text(BREAKING)
    ran = Ran("check", "-p", str(folder), "--no-events")
    assert ran.status == 1
    assert "counter-example" not in ran.out


def test_the_mode_of_the_command_line_is_used(folder: Path) -> None:
    (folder / "orders-value" / "v2.avsc").write_text(BREAKING)
    assert Ran("check", "-p", str(folder), "--mode", "FORWARD").status == 0


def test_plan_apply_check_and_readers_against_a_registry(folder: Path, registry_url: str) -> None:
    registry = ("--registry", registry_url)
    (folder / "orders-value" / "contract.toml").write_text('compatibility = "FULL"')
    planned = Ran("plan", str(folder), *registry)
    assert planned.status == 0
    assert "+ orders-value: set compatibility FULL" in planned.out
    assert "+ orders-value: register version v1 as version 1 (AVRO)" in planned.out
    assert "2 changes to apply" in planned.out
    applied = json.loads(Ran("apply", str(folder), *registry, "--json").out)
    assert applied["applied"]
    assert "Nothing to change" in Ran("apply", str(folder), *registry).out

    new = folder.parent / "new.avsc"
    new.write_text(V2)
    check = ("check", "-p", str(new), "-s", "orders-value", *registry)
    assert Ran(*check).status == 0

    declared = ("reader", "declare", "fraud-scorer", "-s", "orders-value", *registry)
    assert Ran(*declared, "-f", "id", "--version", "7", "--owner", "risk").status == 0
    listed = json.loads(Ran("reader", "list", "-s", "orders-value", *registry, "--json").out)
    assert [(one["name"], one["fields"]) for one in listed] == [("fraud-scorer", ["id"])]
    new.write_text(V2.replace('{"name":"id","type":"long"},', ""))
    ran = Ran(*check, "--mode", "NONE")
    assert ran.status == 1
    assert "removing `id` breaks fraud-scorer 7" in ran.out
    retired = ("reader", "retire", "fraud-scorer", "-s", "orders-value", *registry)
    assert (Ran(*retired).status, Ran(*retired).status) == (0, 2)
    assert Ran(*check, "--mode", "NONE").status == 0


def test_a_plan_that_would_be_refused_changes_nothing(folder: Path, registry_url: str) -> None:
    subject = folder / "orders-value"
    registry = ("--registry", registry_url)
    (folder / "orders-value").rename(folder / "refused-value")
    assert not subject.exists()
    assert Ran("apply", str(folder), *registry).status == 0
    (folder / "refused-value" / "v2.avsc").write_text(BREAKING)
    (folder / "refused-value" / "contract.toml").write_text('compatibility = "FULL"')
    for command in ("plan", "apply"):
        ran = Ran(command, str(folder), *registry)
        assert ran.status == 1
        assert "! refused-value: register version" in ran.out
        assert "Nothing was changed" in ran.out
    assert "set compatibility" in Ran("plan", str(folder), *registry).out


def test_a_plan_lists_only_the_first_unmanaged_subjects(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = ChangePlan((), tuple(f"other-{number}" for number in range(300)))
    show_plan(plan, as_json=False, applied=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "  not in the folder, and unchanged: 300 subjects"
    assert lines[10:12] == ["    other-9", "    … and 290 more (--json lists them all)"]
    show_plan(plan, as_json=True, applied=False)
    assert len(json.loads(capsys.readouterr().out)["unmanaged"]) == 300
