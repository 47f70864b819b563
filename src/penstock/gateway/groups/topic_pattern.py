"""A pattern of topic names, in the syntax of RE2, where no pattern takes long to match. Pure."""

from collections.abc import Iterable
from typing import Final

import re2

from penstock.gateway.errors import bad_request
from penstock.link.topic_admin import TopicDescription


class TopicPattern:
    """Matches whole names of topics; never internal topics."""

    def __init__(self, text: str) -> None:
        """400 if it is not a regular expression."""
        options = re2.Options()
        options.log_errors = False  # RE2 would write to stderr; the client gets the error
        self.text: Final = text
        try:
            self._expression = re2.compile(text, options)
        except re2.error as error:
            reason = error.args[0].decode(errors="replace")  # RE2 gives bytes
            raise bad_request(
                f"pattern {text!r} is not a regular expression in RE2's syntax: {reason}"
            ) from None

    def matching(self, topics: Iterable[TopicDescription]) -> tuple[str, ...]:
        """The names of the topics that it matches, in order."""
        return tuple(
            sorted(
                topic.name
                for topic in topics
                if not topic.is_internal and self._expression.fullmatch(topic.name)
            )
        )
