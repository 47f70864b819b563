"""The `penstock` command. Loads only the family of commands that is asked for.

Standard input, output and error as a shell hands them over: closed, broken or full.
"""

import importlib
import os
import sys
from typing import Final

import typer

from penstock.cli.error_output import RootGroup


def open_missing() -> None:
    """A stream that was closed is an empty one.

    A file or socket would get its number otherwise, and be taken for it.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115 - open to the end of the process
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - as above
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - as above


def drop_output() -> None:
    """Nobody takes what is written: forget what is left of it, so that no more is tried."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


INTERRUPTED: Final = 130  # what a shell makes of SIGINT
# name: (where, whether it has commands of its own)
COMMANDS: Final = {
    "up": ("penstock.cli.up:up", False),
    "broker": ("penstock.cli.broker:broker", False),
    "http": ("penstock.cli.http:http", False),
    "topic": ("penstock.cli.topic:app", True),
    "produce": ("penstock.cli.produce:produce", False),
    "consume": ("penstock.cli.consume:consume", False),
    "group": ("penstock.cli.group:app", True),
    "schema": ("penstock.cli.schema:app", True),
    "contract": ("penstock.cli.contract:app", True),
    "frame": ("penstock.cli.frame:app", True),
    "quarantine": ("penstock.cli.quarantine:app", True),
    "replay": ("penstock.cli.replay:replay", False),
    "doctor": ("penstock.cli.doctor:doctor", False),
    "warm": ("penstock.cli.warm:warm", False),
}


def build(names: list[str]) -> typer.Typer:
    """The command with these families."""
    app = typer.Typer(
        name="penstock",
        cls=RootGroup,
        help="An event streaming platform that speaks the Kafka protocol.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # an error is a line that can be searched for, in no box
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_version)
    for name in names:
        where, has_commands = COMMANDS[name]
        module, _, attribute = where.partition(":")
        found = getattr(importlib.import_module(module), attribute)
        if has_commands:
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    return app


def _version(
    version: bool = typer.Option(False, "--version", help="Print the version and stop."),
) -> None:
    if version:
        from penstock import __version__

        typer.echo(f"penstock {__version__}")
        raise typer.Exit


def main() -> None:
    """The entry point."""
    open_missing()
    wanted = next((word for word in sys.argv[1:] if not word.startswith("-")), None)
    try:
        try:
            build([wanted] if wanted in COMMANDS else list(COMMANDS))()
        finally:
            sys.stdout.flush()  # here, where it can be told that it did not work
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:
        drop_output()
        sys.exit(1 if isinstance(error, BrokenPipeError) else f"penstock: {error}")


if __name__ == "__main__":
    main()
