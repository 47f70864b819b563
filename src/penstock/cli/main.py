"""The `penstock` command. Loads only the commands that are used.

Standard input, output and error may be closed, broken or full.
"""

import importlib
import os
import sys
from pathlib import Path
from typing import Final

import typer

from penstock.cli.error_output import RootGroup
from penstock.cli.profiles import take_option


def open_missing() -> None:
    """Open streams that are closed.

    Otherwise the next file or socket would get the number of one and be used in its place.
    """
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open()  # noqa: SIM115 - open until the process ends
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - as above
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - as above


def drop_output() -> None:
    """Discard what is left to write, because standard output is closed."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)


INTERRUPTED: Final = 130  # a shell's status for SIGINT
# name: (module and attribute, whether it has subcommands)
COMMANDS: Final = {
    "up": ("penstock.cli.up:up", False),
    "broker": ("penstock.cli.broker:broker", False),
    "http": ("penstock.cli.http:http", False),
    "cluster": ("penstock.cli.cluster:app", True),
    "top": ("penstock.cli.top:top", False),
    "topic": ("penstock.cli.topic:app", True),
    "produce": ("penstock.cli.produce:produce", False),
    "consume": ("penstock.cli.consume:consume", False),
    "group": ("penstock.cli.group:app", True),
    "tx": ("penstock.cli.tx:app", True),
    "schema": ("penstock.cli.schema:app", True),
    "contract": ("penstock.cli.contract:app", True),
    "frame": ("penstock.cli.frame:app", True),
    "sql": ("penstock.cli.sql:sql", False),
    "quarantine": ("penstock.cli.quarantine:app", True),
    "replay": ("penstock.cli.replay:replay", False),
    "gen": ("penstock.cli.gen:app", True),
    "lab": ("penstock.cli.lab:app", True),
    "profile": ("penstock.cli.profile:app", True),
    "doctor": ("penstock.cli.doctor:doctor", False),
    "warm": ("penstock.cli.warm:warm", False),
}


def build(names: list[str]) -> typer.Typer:
    """The command with these subcommands."""
    app = typer.Typer(
        name="penstock",
        cls=RootGroup,
        help="An event streaming platform that speaks the Kafka protocol.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # an error is one line that can be searched for, without a box
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_version)
    for name in names:
        location, has_subcommands = COMMANDS[name]
        module, _, attribute = location.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if has_subcommands:
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app


def _version(
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
    profile: str | None = typer.Option(  # noqa: ARG001 - `RootGroup` takes it; this is its help
        None,
        "--profile",
        metavar="NAME",
        help="Use the cluster of this profile; may stand anywhere. See `penstock profile`.",
    ),
) -> None:
    if version:
        from penstock import __version__

        typer.echo(f"penstock {__version__}")
        raise typer.Exit


def _needed(name: str | None) -> list[str]:
    """The commands to load: all of them only for help and for a misspelled name."""
    if name in COMMANDS:
        return [name]
    return [] if "--version" in sys.argv else list(COMMANDS)


def main() -> None:
    """The entry point."""
    open_missing()
    words, _ = take_option(sys.argv[1:])
    name = next((word for word in words if not word.startswith("-")), None)
    try:
        try:
            build(_needed(name))()
        finally:
            sys.stdout.flush()  # here, where a failure can be reported
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:
        drop_output()
        sys.exit(1 if isinstance(error, BrokenPipeError) else f"penstock: {error}")


if __name__ == "__main__":
    main()
