"""The page that lists every command and option, generated from the commands. Writes no file."""

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Final

import typer

from penstock.cli.main import COMMANDS, build

_HEAD: Final = """\
# Commands

Generated from the commands; `pytest tests/docs --rewrite` writes this page again.

Exit status: 0 success, 1 refused, 2 invalid command line, 3 no broker or registry was reached. With
`--json`, an error is an object on standard output: `{"error": "…", "status": 1}`; commands that
take several names report an error for each.

`PENSTOCK_BOOTSTRAP` is the default of every `--bootstrap`, and `PENSTOCK_REGISTRY` of every
`--registry`, except those of `contract check`, which uses a registry only if the command line names
one, and of `lab`, which starts its own platform unless it does. `PENSTOCK_KAFKA_CONFIG` names a
properties file with what the cluster requires of clients: TLS and a login.

A profile has these under a name: `penstock profile create prod --bootstrap broker:9092`, then
`penstock --profile prod topic list`, or `penstock profile use prod` once for all commands.
`--profile` overrides the environment; the environment overrides the profile in use, which
`PENSTOCK_PROFILE` may name too. The commands that serve (`up`, `broker`, `http`), `lab`, `doctor`
and `warm` use no profile.
"""
_KINDS: Final[dict[object, str]] = {int: "N", float: "N", Path: "PATH"}


def commands_page() -> str:
    """The whole page."""
    root: Any = typer.main.get_command(build(list(COMMANDS)))
    sections = [_HEAD]
    for name in COMMANDS:
        sections += _sections(root.commands[name], f"penstock {name}", level=2)
    return "\n".join(sections)


def _sections(command: Any, path: str, *, level: int) -> Iterator[str]:
    """A command, followed by its subcommands."""
    yield f"{'#' * level} `{path}`\n"
    if command.help:
        yield f"{' '.join(command.help.split())}\n"
    subcommands = getattr(command, "commands", None)
    if subcommands is not None:
        for name, subcommand in subcommands.items():
            yield from _sections(subcommand, f"{path} {name}", level=level + 1)
        return
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    usage = " ".join(["penstock", *path.split()[1:], *map(_argument, arguments)])
    yield f"```\n{usage} [OPTIONS]\n```\n"
    rows = [_row(each) for each in (*arguments, *options) if not getattr(each, "hidden", False)]
    if rows:
        yield "\n".join(["| | meaning | default |", "|---|---|---|", *rows]) + "\n"


def _argument(argument: Any) -> str:
    name = (argument.metavar or argument.name.upper()).strip("[]{}")
    shown = f"{name}..." if argument.nargs == -1 else name
    return shown if argument.required else f"[{shown}]"


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        name = f"`{_argument(parameter).strip('[]')}`"
    else:
        spellings = [*parameter.opts, *parameter.secondary_opts]
        kind = "" if parameter.is_flag else f" {_kind(parameter)}"
        name = ", ".join(f"`{spelling}{kind}`" for spelling in spellings)
    return f"| {name} | {_cell(parameter.help or '')} | {_default(parameter)} |"


def _kind(option: Any) -> str:
    """The placeholder of the value; for a choice, all values."""
    kind = option.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "\\|".join(str(choice.value) for choice in kind)
    return str(option.metavar or _KINDS.get(kind, "TEXT"))


def _default(parameter: Any) -> str:
    shown = getattr(parameter, "show_default", None)
    if isinstance(shown, str):
        return f"`{shown}`"
    value = parameter.default
    if parameter.required:
        return "required"
    if value is None or callable(value) or value is False or value == [] or value == "":
        return ""
    return "yes" if value is True else f"`{_cell(str(value))}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
