"""Profiles: made, used and deleted, and which of several settings of a command counts."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.main import COMMANDS, build
from penstock.cli.options import BOOTSTRAP, KAFKA_CONFIG, REGISTRY
from penstock.cli.profiles import (
    ProfileError,
    Profiles,
    profile_environment,
    profiles_path,
    read_profiles,
    take_option,
    write_profiles,
)

COMMAND = ("topic", "list")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's configuration of its own."""
    for variable in (BOOTSTRAP, REGISTRY, KAFKA_CONFIG, "PENSTOCK_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def penstock(*words: str) -> Result:
    return CliRunner().invoke(build(list(COMMANDS)), list(words))


def seen(words: tuple[str, ...] = COMMAND, name: str | None = None) -> list[str | None]:
    """What a command finds in its environment."""
    with profile_environment(words, name):
        return [os.environ.get(variable) for variable in (BOOTSTRAP, REGISTRY, KAFKA_CONFIG)]


def test_a_profile_is_created_used_shown_and_deleted(home: Path) -> None:
    words = ("profile", "create", "prod", "-b", "prod:9092", "-r", "http://prod:8081")
    assert penstock(*words).stdout == "created prod\n"
    assert seen() == [None, None, None]
    assert penstock("profile", "use", "prod").stdout == "using prod\n"
    assert seen() == ["prod:9092", "http://prod:8081", None]
    shown = json.loads(penstock("profile", "show", "--json").stdout)
    assert shown == {"profile": "prod", "bootstrap": "prod:9092", "registry": "http://prod:8081"}
    penstock("profile", "create", "dev", "-b", "dev:9092")
    rows = penstock("profile", "list").stdout.splitlines()
    assert [row.split() for row in rows[1:]] == [
        ["dev", "dev:9092", "-", "-"],
        ["*", "prod", "prod:9092", "http://prod:8081", "-"],
    ]
    assert penstock("profile", "use", "--none").stdout == "no profile is in use\n"
    assert seen() == [None, None, None]
    penstock("profile", "use", "prod")
    assert penstock("profile", "delete", "prod").stdout == "deleted prod\n"
    assert read_profiles(profiles_path()) == Profiles({"dev": {"bootstrap": "dev:9092"}}, None)
    assert [path.name for path in (home / "penstock").iterdir()] == ["profiles.toml"]


def test_an_option_beats_the_environment_which_beats_the_profile_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = {"bootstrap": "used:9092", "registry": "http://used:8081"}
    named = {"named": {"bootstrap": "named:9092"}, "used": both}
    write_profiles(profiles_path(), Profiles(named, "used"))
    monkeypatch.setenv(BOOTSTRAP, "env:9092")
    assert seen() == ["env:9092", "http://used:8081", None]
    assert seen(name="named") == ["named:9092", None, None]
    assert os.environ[BOOTSTRAP] == "env:9092"
    monkeypatch.setenv("PENSTOCK_PROFILE", "named")
    assert seen() == ["env:9092", None, None]
    shown = penstock("topic", "list", "-b", "127.0.0.1:1", "--profile", "named")
    assert "cannot connect to 127.0.0.1:1" in shown.output


def test_commands_connect_to_the_cluster_of_the_profile(bootstrap: str) -> None:
    write_profiles(profiles_path(), Profiles({"here": {"bootstrap": bootstrap}}))
    for words in (("--profile", "here", *COMMAND), (*COMMAND, "--profile=here")):
        assert penstock(*words).exit_code == 0
    (row,) = json.loads(penstock("cluster", "info", "--json", "--profile", "here").stdout)[
        "brokers"
    ]
    assert row["address"] == bootstrap


def test_commands_that_serve_use_no_profile() -> None:
    write_profiles(profiles_path(), Profiles({"prod": {"kafka_config": "/prod"}}, "prod"))
    assert seen(("http",)) == [None, None, None]
    refused = penstock("up", "--profile", "prod")
    assert (refused.exit_code, refused.stderr) == (1, "penstock: `penstock up` uses no profile\n")


def test_the_option_is_taken_from_anywhere_before_a_double_dash() -> None:
    assert take_option(["a", "--profile", "p", "b"]) == (["a", "b"], "p")
    assert take_option(["a", "--", "--profile", "p"]) == (["a", "--", "--profile", "p"], None)
    assert take_option(["a", "--profile"]) == (["a"], "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("topic list --profile", "--profile needs a name"),
        ("topic list --profile missing", "there is no profile 'missing'"),
        ("profile use missing", "there is no profile 'missing'"),
        ("profile use", "name a profile, or none with --none"),
        ("profile show", "no profile is in use"),
        ("profile create prod", "name at least one of --bootstrap"),
        ("profile create a/b -b x:1", "use letters, digits"),
        ("profile create there -b x:1", "profile there exists; replace it with --overwrite"),
    ],
)
def test_a_mistake_is_reported_in_one_line(words: str, message: str) -> None:
    write_profiles(profiles_path(), Profiles({"there": {"bootstrap": "x:1"}}))
    result = penstock(*words.split())
    assert result.exit_code in (1, 2)
    assert message in result.stderr


@pytest.mark.parametrize(
    "text", ["current = 7", "[profiles.a]\nboot = 'x'", "profiles = 1", "no toml", "other = 1"]
)
def test_a_damaged_file_is_reported_with_its_path(text: str) -> None:
    path = profiles_path()
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(ProfileError, match=str(path)):
        read_profiles(path)
    result = penstock("topic", "list", "--json")
    assert json.loads(result.stdout)["status"] == 1


def test_any_text_survives_in_the_file() -> None:
    odd = {"kafka_config": 'C:\\"x"\n\t\x7f\u20ac\U0001f600', "bootstrap": "a b"}
    write_profiles(profiles_path(), Profiles({"with.dot": odd}, "with.dot"))
    assert read_profiles(profiles_path()) == Profiles({"with.dot": odd}, "with.dot")
