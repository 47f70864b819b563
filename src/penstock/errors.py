"""Three kinds of wrong, and this file holds the two that are not Python's own.

Refused     understood and declined, with a code and what to do; answered to the caller
Malformed   bytes that cannot be what they claim; costs the peer its connection
AssertionError   our bug, left on in production
OSError, TimeoutError   the broken world; the shell's business
"""

from typing import Self

from kio.schema.errors import ErrorCode

__all__ = ["ErrorCode", "Malformed", "Refused"]


class Refused(Exception):
    """A request that was understood and declined."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"

    def without_frames(self) -> Self:
        """For a refusal that is kept: its traceback, cause and context hold every frame on the way,
        and so the buffers there, until a garbage collection finds them.
        """
        self.__traceback__ = self.__cause__ = self.__context__ = None
        return self


class Malformed(Exception):
    """Bytes that are not what they should be: where, and why."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason, position)
        self.reason = reason
        self.position = position

    def __str__(self) -> str:
        return f"{self.reason} (at byte {self.position})"
