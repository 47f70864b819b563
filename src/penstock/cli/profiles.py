"""Profiles: which cluster and registry commands use, under names, in one file of the user.

A value is taken from the command line, else from the profile that --profile names, else from the
environment, else from the profile in use, else from the command's default. Commands that serve use
no profile. Loads no Kafka client.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from penstock.cli.options import BOOTSTRAP, KAFKA_CONFIG, REGISTRY

PROFILE: Final = "PENSTOCK_PROFILE"
OPTION: Final = "--profile"
WITHOUT_PROFILES: Final = frozenset(("up", "broker", "http", "doctor", "lab", "profile", "warm"))
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class ProfileKey(NamedTuple):
    """A row: what a profile may have."""

    name: str
    variable: str  # of the environment: how commands get it


KEYS: Final = (
    ProfileKey("bootstrap", BOOTSTRAP),
    ProfileKey("registry", REGISTRY),
    ProfileKey("kafka_config", KAFKA_CONFIG),
)


class ProfileError(Exception):
    """A profile that does not exist, or a file that cannot be read."""


@dataclass(slots=True)
class Profiles:
    """The file: profiles by name, and which one is in use."""

    by_name: dict[str, dict[str, str]] = field(default_factory=dict)
    current: str | None = None

    def find(self, name: str) -> dict[str, str]:
        """A profile; raises ProfileError."""
        if name not in self.by_name:
            raise ProfileError(
                f"there is no profile {name!r}; `penstock profile list` lists them, and "
                f"`penstock profile create` makes one."
            )
        return self.by_name[name]


def profiles_path() -> Path:
    """Where the file is."""
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "penstock" / "profiles.toml"


def read_profiles(path: Path) -> Profiles:
    """The file; empty if there is none."""
    import tomllib

    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Profiles()
    except (OSError, ValueError) as error:
        raise ProfileError(f"cannot read {path}: {error}") from None
    tables = document.pop("profiles", {})
    current = document.pop("current", None)
    is_valid = isinstance(tables, dict) and all(map(_is_profile, tables.values())) and not document
    if not is_valid or not isinstance(current, str | None):
        names = ", ".join(key.name for key in KEYS)
        raise ProfileError(
            f"{path} may have `current`, and under [profiles.NAME] only {names}, as text."
        )
    return Profiles(tables, current)


def _is_profile(table: Any) -> bool:
    known = {key.name for key in KEYS}
    return (
        isinstance(table, dict)
        and table.keys() <= known
        and all(isinstance(value, str) for value in table.values())
    )


def write_profiles(path: Path, profiles: Profiles) -> None:
    """Replace the file; a crash leaves the old one or the new one."""
    lines = [] if profiles.current is None else [f"current = {_quoted(profiles.current)}"]
    for name, values in sorted(profiles.by_name.items()):
        lines += ["", f"[profiles.{_quoted(name)}]"]
        lines += [f"{key} = {_quoted(value)}" for key, value in values.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_suffix(".new")
    written.write_text("\n".join([*lines, ""]).lstrip("\n"), encoding="utf-8")
    written.replace(path)


def _quoted(text: str) -> str:
    """A TOML string: JSON's, but for one character that TOML wants escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def is_valid_name(name: str) -> bool:
    """Whether a profile may have this name."""
    return _NAME.fullmatch(name) is not None


def take_option(words: Sequence[str]) -> tuple[list[str], str | None]:
    """The command line without --profile, which may be anywhere, and the name."""
    rest: list[str] = []
    name = None
    left = iter(words)
    for word in left:
        if word == "--":
            return [*rest, word, *left], name
        if word == OPTION:
            name = next(left, "")
        elif word.startswith(f"{OPTION}="):
            name = word.partition("=")[2]
        else:
            rest.append(word)
    return rest, name


@contextmanager
def profile_environment(words: Sequence[str], name: str | None) -> Iterator[None]:
    """The environment as a profile completes it; `name`: what --profile says."""
    if name == "":
        raise ProfileError(f"{OPTION} needs a name")
    command = next((word for word in words if not word.startswith("-")), None)
    if command is None or command in WITHOUT_PROFILES:
        if name is not None and command is not None:
            raise ProfileError(f"`penstock {command}` uses no profile")
        yield
        return
    before = {key.variable: os.environ.get(key.variable) for key in KEYS}
    try:
        _set_environment(_chosen_values(name), before, replaces=name is not None)
        yield
    finally:
        _set_environment({}, before, replaces=True)
        os.environ.update({key: value for key, value in before.items() if value is not None})


def _chosen_values(name: str | None) -> Mapping[str, str]:
    profiles = read_profiles(profiles_path())
    chosen = name or os.environ.get(PROFILE) or profiles.current
    return {} if chosen is None else profiles.find(chosen)


def _set_environment(
    values: Mapping[str, str], before: Mapping[str, str | None], *, replaces: bool
) -> None:
    """Set variables by a profile: all of them, or only those that are not set."""
    for key in KEYS:
        if replaces:
            os.environ.pop(key.variable, None)
        if key.name in values and (replaces or before[key.variable] is None):
            os.environ[key.variable] = values[key.name]
