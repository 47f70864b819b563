"""Three kinds of failure; this module defines the exceptions that are not Python's own.

Refused                 a valid request that is declined, with an error code and what to do next
Malformed               bytes that cannot be valid; closes the connection that they came from
OSError, TimeoutError   the environment; handled by the shell
AssertionError          a bug; enabled in production
"""

from typing import Self

from kio.schema.errors import ErrorCode

__all__ = ["ErrorCode", "Malformed", "Refused"]


class Refused(Exception):  # noqa: N818 - the name of a kind of failure
    """A valid request that is declined."""

    __cause__: BaseException | None
    __context__: BaseException | None

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"

    def without_frames(self) -> Self:
        """For a refusal that is stored: its traceback, cause and context would keep every frame,
        and the buffers of those frames, alive until a garbage collection.
        """
        self.__cause__, self.__context__ = None, None
        return self.with_traceback(None)


class Malformed(Exception):  # noqa: N818 - as above
    """Bytes that are not valid: why, and at which position."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason, position)
        self.reason = reason
        self.position = position

    def __str__(self) -> str:
        return f"{self.reason} (at byte {self.position})"
