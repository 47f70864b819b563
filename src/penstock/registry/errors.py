"""Errors of the registry, in Confluent's codes and words: people and clients match on both.

A code of five digits starts with its HTTP status.
"""

from typing import Final

INCOMPATIBLE: Final = 40901
INVALID_SCHEMA: Final = 42201
INVALID_RULE_SET: Final = 42210
NOT_PERMITTED: Final = 42205


class DeclinedError(Exception):
    """A request that was understood and declined."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.code if self.code < 1000 else self.code // 100


def malformed(reason: str) -> DeclinedError:
    """The body is not what it should be."""
    return DeclinedError(400, reason)


def subject_not_found(subject: str) -> DeclinedError:
    """The subject has no versions, or all were deleted."""
    return DeclinedError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: object) -> DeclinedError:
    """The subject exists, the version does not."""
    return DeclinedError(40402, f"Version {version} not found.")


def schema_not_found(which: object = None) -> DeclinedError:
    """No schema has this id or GUID, or equals this one."""
    return DeclinedError(
        40403, "Schema not found" if which is None else f"Schema {which} not found"
    )


def subject_soft_deleted(subject: str) -> DeclinedError:
    """Deleting a second time must be permanent."""
    return DeclinedError(
        40404,
        f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently",
    )


def subject_not_soft_deleted(subject: str) -> DeclinedError:
    """A permanent delete needs a soft delete first."""
    return DeclinedError(
        40405,
        f"Subject '{subject}' was not deleted first before being permanently deleted",
    )


def version_soft_deleted(subject: str, version: int) -> DeclinedError:
    """As `subject_soft_deleted`, of one version."""
    return DeclinedError(
        40406,
        f"Subject '{subject}' Version {version} was soft deleted. "
        "Set permanent=true to delete permanently",
    )


def version_not_soft_deleted(subject: str, version: int) -> DeclinedError:
    """As `subject_not_soft_deleted`, of one version."""
    return DeclinedError(
        40407,
        f"Subject '{subject}' Version {version} was not deleted first "
        "before being permanently deleted",
    )


def level_not_configured(subject: str) -> DeclinedError:
    """The subject has no level of its own."""
    return DeclinedError(
        40408, f"Subject '{subject}' does not have subject-level compatibility configured"
    )


def mode_not_configured(subject: str) -> DeclinedError:
    """The subject has no mode of its own."""
    return DeclinedError(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, details: list[str]) -> DeclinedError:
    """The level of the subject forbids the change."""
    return DeclinedError(
        INCOMPATIBLE,
        "Schema being registered is incompatible with an earlier schema for subject "
        f'"{subject}", details: [{", ".join(details)}]',
    )


def breaks_readers(subject: str, details: list[str]) -> DeclinedError:
    """A declared reader could not read it, whatever the level of the subject allows."""
    return DeclinedError(
        INCOMPATIBLE,
        "Schema being registered breaks registered readers of subject "
        f'"{subject}", details: [{", ".join(details)}]',
    )


def invalid_schema(reason: str) -> DeclinedError:
    """The text is not a schema, or refers to one that does not exist."""
    return DeclinedError(INVALID_SCHEMA, reason)


def invalid_version(version: str) -> DeclinedError:
    """Neither a number in range nor `latest`."""
    return DeclinedError(
        42202,
        f"The specified version '{version}' is not a valid version id. "
        'Allowed values are between [1, 2^31-1] and the string "latest"',
    )


def invalid_level() -> DeclinedError:
    """No such compatibility level."""
    return DeclinedError(
        42203,
        "Invalid compatibility level. Valid values are none, backward, forward, full, "
        "backward_transitive, forward_transitive, and full_transitive",
    )


def invalid_mode() -> DeclinedError:
    """No such mode."""
    return DeclinedError(
        42204,
        "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, IMPORT and FORWARD",
    )


def not_permitted(reason: str) -> DeclinedError:
    """The mode of the subject forbids it, or an id would change its meaning."""
    return DeclinedError(NOT_PERMITTED, reason)


def reference_exists(subject: str, version: int) -> DeclinedError:
    """Other schemas refer to it."""
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
    return DeclinedError(42206, f"One or more references exist to the schema {key}.")


def invalid_subject(subject: str) -> DeclinedError:
    """Not a legal name of a subject."""
    return DeclinedError(42208, f"The specified subject '{subject}' is not a valid subject.")


def schema_too_large(reason: str) -> DeclinedError:
    """Too large for a record of Kafka."""
    return DeclinedError(42209, f"Register operation failed because schema is too large: {reason}")


def invalid_rule_set(reason: str) -> DeclinedError:
    """The rules contradict themselves."""
    return DeclinedError(INVALID_RULE_SET, f"Invalid rule set: {reason}")


def store_failed(reason: str) -> DeclinedError:
    """The log could not be read or written."""
    return DeclinedError(50001, f"Error in the backend data store: {reason}")


def timed_out(reason: str) -> DeclinedError:
    """It took too long; the outcome may be unknown."""
    return DeclinedError(50002, f"Operation timed out: {reason}")


def forwarding_failed(reason: str) -> DeclinedError:
    """The primary did not respond."""
    return DeclinedError(50003, f"Error while forwarding the request to the primary: {reason}")


def not_installed(reason: str) -> DeclinedError:
    """This registry lacks a library; Confluent has no code for it."""
    return DeclinedError(50101, reason)


def primary_unknown() -> DeclinedError:
    """No node may write at this moment."""
    return DeclinedError(
        50004, "The primary of the registry is not known at this moment; try again"
    )
