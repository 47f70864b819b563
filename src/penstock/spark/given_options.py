"""Options of `format("penstock")` as Spark passes them: text by name, checked against a table.

A name that is not in the table is refused, with the nearest name that is. Makes no request.
"""

import difflib
import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from penstock.errors import ErrorCode, Refused
from penstock.spark.option_rows import SparkOption

Choice = TypeVar("Choice", bound=StrEnum)


def config_error(reason: str) -> Refused:
    """The refusal of arguments or options that cannot be carried out."""
    return Refused(ErrorCode.invalid_config, reason)


def option_error(name: str, reason: str) -> Refused:
    """The refusal of one option: `reason` continues the sentence that its name begins."""
    return config_error(f"option {name} {reason}")


class GivenOptions:
    """The options of one query; names are case-insensitive, as in Spark."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): text for name, text in options.items()}

    def refuse_unknown(self, rows: Sequence[SparkOption], ignored: frozenset[str]) -> None:
        """Refuse a name that is neither a row of the table, nor `kafka.*`, nor ignored."""
        names = {row.name.lower(): row.name for row in rows}
        for name in self._options:
            if name.startswith("kafka.") or name in names or name in ignored:
                continue
            near = difflib.get_close_matches(name, names, 1)
            hint = f": did you mean {names[near[0]]}?" if near else ""
            raise option_error(name, f"is not known{hint}")

    def refuse_present(self, names: Sequence[str], where: str) -> None:
        """Refuse options that mean nothing here."""
        for name in names:
            if self.text(name) is not None:
                raise option_error(name, f"has no meaning for {where}")

    def text(self, name: str) -> str | None:
        """The option's text; None if it is absent or blank."""
        return self._options.get(name.lower(), "").strip() or None

    def flag(self, name: str, *, default: bool) -> bool:
        """`true` or `false`."""
        text = (self.text(name) or str(default)).lower()
        if text not in ("true", "false"):
            raise option_error(name, f"is {text!r}, not true or false")
        return text == "true"

    def count(self, name: str) -> int | None:
        """A number above zero."""
        text = self.text(name)
        if text is None:
            return None
        if not text.isdecimal() or int(text) == 0:
            raise option_error(name, f"is {text!r}, not a number above zero")
        return int(text)

    def choice(self, name: str, choices: type[Choice]) -> Choice | None:
        """One of a fixed set of words."""
        text = self.text(name)
        if text is None:
            return None
        if text.lower() not in set(choices):
            raise option_error(name, f"is {text!r}, not one of {', '.join(choices)}")
        return choices(text.lower())

    def names(self, name: str) -> tuple[str, ...] | None:
        """Names separated by commas, each at most once."""
        text = self.text(name)
        if text is None:
            return None
        names = tuple(item.strip() for item in text.split(",") if item.strip())
        if len(set(names)) < len(names):
            raise option_error(name, "has a name twice")
        return names

    def json(self, name: str) -> dict[str, Any]:
        """A JSON object with topic names."""
        try:
            document = json.loads(self.text(name) or "")
        except ValueError as error:
            raise option_error(name, f"is not JSON: {error}") from None
        if not isinstance(document, dict):
            raise option_error(name, "is not a JSON object with topic names")
        return document
