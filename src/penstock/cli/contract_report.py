"""What the contract commands share: the name of their client, and how they report errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

from penstock.cli import error_output
from penstock.serde.errors import ClientError

CANNOT_CHECK: Final = 2
CLIENT: Final = "penstock contract"


@contextmanager
def contract_errors() -> Iterator[None]:
    """Turn an error inside into a message and an exit status."""
    try:
        yield
    except ClientError as failure:
        fail(str(failure))


def fail(message: str, status: int = CANNOT_CHECK) -> NoReturn:
    """Report an error and exit."""
    error_output.fail(message, status)
