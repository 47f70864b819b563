"""How a command reports an error: a line on standard error, or with --json an object on standard
output: {"error": "...", "status": 1}. Loads no Kafka client.

Exit status: 0 success, 1 refused, 2 invalid command line, 3 no broker or registry was reached.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NoReturn

import typer
from typer.core import TyperGroup

from penstock.cli.profiles import ProfileError, profile_environment, take_option
from penstock.extras import MissingExtraError

REFUSED: Final = 1
UNREACHABLE: Final = 3
_as_json: ContextVar[bool] = ContextVar("errors_as_json", default=False)


def show_error(message: str, status: int) -> None:
    """Report an error as text, or as JSON with --json."""
    if _as_json.get():
        _show_json(message, status)
    else:
        typer.echo(f"penstock: {message}", err=True)


def show_server_error(command: str, message: str, status: int) -> None:
    """Report an error of a command that serves: always on standard error, where its log is."""
    if _as_json.get():
        _show_json(message, status)
    typer.echo(f"{command}: {message}", err=True)


def _show_json(message: str, status: int) -> None:
    document = {"error": message, "status": status}
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")


def fail(message: str, status: int = REFUSED) -> NoReturn:
    """Report an error and exit."""
    show_error(message, status)
    raise typer.Exit(status)


class RootGroup(TyperGroup):
    """The `penstock` command: takes --profile anywhere, and with --json reports errors as JSON."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command line."""
        words = sys.argv[1:] if args is None else list(args)
        with _errors_as_json("--json" in words) as as_json:
            try:
                words, profile = take_option(words)
                with profile_environment(words, profile):
                    status = super().main(
                        words,
                        prog_name,
                        complete_var,
                        standalone_mode and not as_json,
                        windows_expand_args,
                        **extra,
                    )
            except ProfileError as error:
                show_error(str(error), REFUSED)
                sys.exit(REFUSED)
            except MissingExtraError as missing:
                show_error(str(missing), REFUSED)
                sys.exit(REFUSED)
            except typer.TyperException as invalid:
                if not as_json or not standalone_mode:
                    raise
                show_error(invalid.format_message(), invalid.exit_code)
                status = invalid.exit_code
            if not as_json or not standalone_mode:
                return status
            sys.exit(status if isinstance(status, int) else 0)


@contextmanager
def _errors_as_json(enabled: bool) -> Iterator[bool]:
    token = _as_json.set(enabled)
    try:
        yield enabled
    finally:
        _as_json.reset(token)
