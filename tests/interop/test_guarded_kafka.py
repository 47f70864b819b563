"""On an Apache Kafka that asks who comes: the registry and the commands, with one file."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.apache_kafka import PeerUnavailableError
from tests.support.guarded_kafka import Guarded, guarded_kafka

pytestmark = [pytest.mark.slow, pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    try:
        with guarded_kafka(tmp_path_factory.mktemp("guarded")) as peer:
            yield peer
    except PeerUnavailableError as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def config(guarded: Guarded, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in guarded.properties.items()))
    return path


def command(*words: str, config: Path | None, given: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **({"PENSTOCK_KAFKA_CONFIG": str(config)} if config else {})}
    return subprocess.run(
        [sys.executable, "-m", "penstock", *words],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        input=given,
        check=False,
    )


def test_the_registry_keeps_its_schemas_behind_a_login(guarded: Guarded, config: Path) -> None:
    words = ["up", "--log", f"kafka:{guarded.scram_over_tls}", "--kafka-config", str(config)]
    up = subprocess.Popen(
        [sys.executable, "-m", "penstock", *words, "--http-port", "0", "--json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert up.stdout is not None
        url = json.loads(up.stdout.readline())["http"]
        made = httpx.post(f"{url}/subjects/s/versions", json={"schema": '"int"'}, timeout=60)
        assert made.json()["id"] == 1
        topics = command("topic", "list", "--json", "-b", guarded.scram_over_tls, config=config)
        assert "_schemas" in topics.stdout, topics.stderr
    finally:
        up.terminate()
        up.communicate(timeout=30)


def test_commands_log_in_with_the_file_the_environment_names(
    guarded: Guarded, config: Path
) -> None:
    there = ("-b", guarded.scram_over_tls)
    made = command("topic", "create", "letters", *there, config=config)
    assert made.returncode == 0, made.stderr
    sent = command("produce", "letters", *there, config=config, given="hello\n")
    assert sent.returncode == 0, sent.stderr
    read = command("consume", "letters", "--exit", *there, config=config)
    assert read.stdout == "hello\n"
    looked = command("quarantine", "list", "letters", *there, config=config)
    assert "nothing was ever put into quarantine" in looked.stderr
    stranger = command("topic", "list", *there, config=None)
    assert stranger.returncode == 3, stranger.stdout


def test_a_wrong_password_is_said_to_be_wrong(guarded: Guarded, tmp_path: Path) -> None:
    wrong = tmp_path / "client.properties"
    changed = {**guarded.properties, "sasl.password": "guess"}
    wrong.write_text("".join(f"{name}={value}\n" for name, value in changed.items()))
    http = command(
        "http", "--kafka", guarded.scram_over_tls, "--http-port", "0", "--kafka-config", str(wrong),
        config=None,
    )  # fmt: skip
    assert http.returncode == 1
    assert "cannot connect to" in http.stderr
