"""A result that is not known yet, without a task or a future."""

from collections.abc import Callable
from typing import Generic, TypeVar

ResultT = TypeVar("ResultT")


class Deferred(Generic[ResultT]):
    """Resolved once by its owner, with the result or the exception instead of it.

    One listener is called in the resolver's stack. After `cancel` the owner may stop working on the
    result, and resolving it has no effect.
    """

    __slots__ = ("_is_cancelled", "_listener", "_on_cancel", "_result", "is_resolved")

    def __init__(self, on_cancel: Callable[[], object] | None = None) -> None:
        self.is_resolved: bool = False
        self._result: ResultT | Exception | None = None
        self._listener: Callable[[ResultT | Exception], None] | None = None
        self._on_cancel = on_cancel
        self._is_cancelled = False

    def resolve(self, result: ResultT | Exception) -> None:
        """Give the result; a second one, or one that comes after `cancel`, has no effect."""
        if self.is_resolved or self._is_cancelled:
            return
        self.is_resolved = True
        self._result = result
        if self._listener is not None:
            self._listener(result)

    def listen(self, listener: Callable[[ResultT | Exception], None]) -> None:
        """Call with the result: now if it is known, else when it is."""
        assert self._listener is None, "a result has one listener"
        self._listener = listener
        if self.is_resolved:
            listener(self._result)  # type: ignore[arg-type]  # None only if that is the result

    def cancel(self) -> None:
        """The result is no longer needed."""
        if self.is_resolved or self._is_cancelled:
            return
        self._is_cancelled = True
        if self._on_cancel is not None:
            self._on_cancel()
