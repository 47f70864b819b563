"""A task's failure reaches the driver as text, and its code with it."""

from collections.abc import Iterator
from traceback import format_exception

import pytest

from penstock.errors import ErrorCode, Refused
from penstock.spark.task_failures import TaskError, failure_from, with_codes


def reported(failure: Exception) -> str:
    """What Spark reports on the driver: the Python traceback within a Java trace."""

    def work() -> Iterator[int]:
        yield 1
        raise failure

    with pytest.raises(TaskError) as raised:
        list(with_codes(work()))
    trace = "".join(format_exception(raised.value))
    return f"Job aborted.\n\nDriver stacktrace:\n{trace}\n\tat org.apache.spark.Task.run"


def test_a_refusal_keeps_its_code_and_message() -> None:
    text = reported(Refused(ErrorCode.message_too_large, "row 3\nis too large"))
    failure = failure_from(text)
    assert failure.code is ErrorCode.message_too_large
    assert failure.message == "row 3 is too large"


def test_any_other_failure_has_a_code_too() -> None:
    failure = failure_from(reported(ValueError("not a number")))
    assert failure.code is ErrorCode.unknown_server_error
    assert failure.message == "ValueError: not a number"


def test_a_failure_without_a_code_is_the_last_line_of_its_traceback() -> None:
    text = (
        "An error\nTraceback (most recent call last):\n  File x\n    raise\n"
        "penstock.errors.Refused: message_too_large: row 3\n\n\tat org."
    )
    failure = failure_from(text)
    assert failure.code is ErrorCode.unknown_server_error
    assert failure.message == "penstock.errors.Refused: message_too_large: row 3"


@pytest.mark.parametrize("text", ["no traceback", "[penstock:no_such_code] text"])
def test_a_text_of_another_kind_is_kept(text: str) -> None:
    failure = failure_from(text)
    assert (failure.code, failure.message) == (ErrorCode.unknown_server_error, text)


def test_a_long_text_is_cut() -> None:
    assert len(failure_from("x" * 10_000).message) == 2_000
