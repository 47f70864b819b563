"""What the commands about contracts share: the registry's address, and how they fail."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final, NoReturn

import typer

from penstock.cli import error_output
from penstock.serde.errors import ClientError

CANNOT_CHECK: Final = 2
CLIENT: Final = "penstock contract"
Registry = Annotated[
    str,
    typer.Option(
        "--registry", "-r", envvar="PENSTOCK_REGISTRY", help="The registry: http://host:port."
    ),
]


@contextmanager
def telling() -> Iterator[None]:
    """Turn what goes wrong inside into a message and an exit status."""
    try:
        yield
    except ClientError as wrong:
        fail(str(wrong))


def fail(message: str, status: int = CANNOT_CHECK) -> NoReturn:
    """Report an error and exit."""
    error_output.fail(message, status)
