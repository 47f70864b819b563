"""What can go wrong between a program and its events, and which errors are worth a retry.

ClientError
    RegistryUnavailableError  the registry cannot be reached: retry; cached schemas still work
    RegistryRefusedError      the registry declined a request, with its code
        UnknownSchemaError    ... because it has no such id, subject or version
    DecodeError               these bytes cannot be read, now or later: quarantine them
    UnsupportedRuleError      the schema has a rule that this client cannot run: nothing is written
    EncodeError               this value does not fit the schema: fix the value or the schema
    ArgumentError             an argument or setting is invalid; also a ValueError
"""

from enum import StrEnum

from penstock.schemas.identity import Rule
from penstock.schemas.model import SchemaType
from penstock.schemas.rules import describe_rule


class Reason(StrEnum):
    """Why bytes could not be read. Few and fixed: they are labels of a metric."""

    NOT_FRAMED = "not_framed"  # no magic byte: written without a registry
    TRUNCATED_FRAME = "truncated_frame"  # ends inside the schema's id
    BAD_INDEXES = "bad_indexes"  # Protobuf: the path to the message leads nowhere
    UNKNOWN_SCHEMA = "unknown_schema"  # the registry has no such id
    UNUSABLE_SCHEMA = "unusable_schema"  # it has, but the schema cannot be understood
    UNRESOLVABLE = "unresolvable"  # the reader's schema cannot read what this schema wrote
    UNDECODABLE = "undecodable"  # the payload is not what the schema says
    TRAILING_BYTES = "trailing_bytes"  # something follows a payload that was complete
    RULE_VIOLATED = "rule_violated"  # readable, and the schema's rules forbid the value


class ClientError(Exception):
    """The root of what this package raises."""

    retriable: bool = False


class RegistryUnavailableError(ClientError):
    """The registry cannot be reached. Cached schemas still work; retry later."""

    retriable = True

    def __init__(self, url: str, request: str, cause: str) -> None:
        super().__init__(
            f"cannot reach the schema registry at {url} for {request} ({cause}). Is it running, "
            "and reachable from here? Cached schemas still work; retry later."
        )
        self.url = url
        self.request = request
        self.cause = cause


class RegistryRefusedError(ClientError):
    """The registry declined; `code` is one of its own, such as 40901 for incompatible."""

    def __init__(self, code: int, message: str, advice: str = "") -> None:
        super().__init__(f"{message} (registry code {code})" + (f". {advice}" if advice else ""))
        self.code = code
        self.message = message


class UnknownSchemaError(RegistryRefusedError):
    """The registry has no such id, GUID, subject or version."""


class DecodeError(ClientError):
    """One event's key or value cannot be read; `reason` says what kind of wrong it is."""

    def __init__(
        self,
        reason: Reason,
        detail: str,
        *,
        schema: str | None = None,
        subject: str | None = None,
    ) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.schema = schema  # the writer's, as the frame names it: an id or a GUID
        self.subject = subject


class EncodeError(ClientError):
    """A value that the schema does not allow."""

    def __init__(self, subject: str, schema_type: SchemaType, detail: str) -> None:
        super().__init__(f"the value does not fit the {schema_type} schema of {subject}: {detail}")
        self.subject = subject
        self.type: SchemaType = schema_type
        self.detail = detail

    def at_row(self, row: int) -> "EncodeError":
        """The same, of one event among many; the first is 0."""
        return EncodeError(self.subject, self.type, f"event {row}: {self.detail}")


class UnsupportedRuleError(ClientError):
    """The schema to write with has an active rule, and this client runs no rules."""

    def __init__(self, subject: str, rule: Rule) -> None:
        super().__init__(
            f"nothing was written: the schema of {subject} has the rule {describe_rule(rule)}, "
            "which this client does not run. Write with a client that runs it, or register the "
            "schema with the rule disabled."
        )
        self.subject = subject
        self.rule: str | None = rule.name


class ArgumentError(ClientError, ValueError):
    """An argument or a setting that cannot be used: correct the call."""
