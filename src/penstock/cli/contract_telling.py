"""What the commands about contracts share: the day, the registry's address, and how they fail."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import Annotated, Final, NoReturn

import typer

from penstock.client.errors import ClientError

CANNOT_CHECK: Final = 2
Registry = Annotated[str, typer.Option("--registry", "-r", help="The registry: http://host:port.")]


def today() -> date:
    """By UTC, as registries and their clients may be anywhere."""
    return datetime.fromtimestamp(time.time(), UTC).date()


@contextmanager
def telling() -> Iterator[None]:
    """Turn what goes wrong inside into a message and an exit status."""
    try:
        yield
    except ClientError as wrong:
        fail(str(wrong))


def fail(message: str, status: int = CANNOT_CHECK) -> NoReturn:
    """Say so, and leave."""
    typer.echo(f"penstock: {message}", err=True)
    raise typer.Exit(status)
