"""What the registry declines, in Confluent's codes and words: people and clients match on both.

A code of five digits starts with the HTTP status it travels under.
"""

from typing import Final

INCOMPATIBLE: Final = 40901
INVALID_SCHEMA: Final = 42201
INVALID_RULE_SET: Final = 42210
NOT_PERMITTED: Final = 42205


class Declined(Exception):
    """A request that was understood and refused."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.code if self.code < 1000 else self.code // 100


def malformed(reason: str) -> Declined:
    """The body is not what it should be."""
    return Declined(400, reason)


def subject_not_found(subject: str) -> Declined:
    """Nobody registered anything there, or all of it was deleted."""
    return Declined(40401, f"Subject '{subject}' not found.")


def version_not_found(version: object) -> Declined:
    """The subject is there, the version is not."""
    return Declined(40402, f"Version {version} not found.")


def schema_not_found(which: object = None) -> Declined:
    """No schema has this id or GUID, or equals this one."""
    return Declined(40403, "Schema not found" if which is None else f"Schema {which} not found")


def subject_soft_deleted(subject: str) -> Declined:
    """Deleting a second time must be permanent."""
    return Declined(
        40404,
        f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently",
    )


def subject_not_soft_deleted(subject: str) -> Declined:
    """A permanent delete comes second."""
    return Declined(
        40405,
        f"Subject '{subject}' was not deleted first before being permanently deleted",
    )


def version_soft_deleted(subject: str, version: int) -> Declined:
    """As `subject_soft_deleted`, of one version."""
    return Declined(
        40406,
        f"Subject '{subject}' Version {version} was soft deleted. "
        "Set permanent=true to delete permanently",
    )


def version_not_soft_deleted(subject: str, version: int) -> Declined:
    """As `subject_not_soft_deleted`, of one version."""
    return Declined(
        40407,
        f"Subject '{subject}' Version {version} was not deleted first "
        "before being permanently deleted",
    )


def level_not_configured(subject: str) -> Declined:
    """The subject has no level of its own."""
    return Declined(
        40408, f"Subject '{subject}' does not have subject-level compatibility configured"
    )


def mode_not_configured(subject: str) -> Declined:
    """The subject has no mode of its own."""
    return Declined(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, details: list[str]) -> Declined:
    """The level of the subject forbids the change."""
    return Declined(
        INCOMPATIBLE,
        "Schema being registered is incompatible with an earlier schema for subject "
        f'"{subject}", details: [{", ".join(details)}]',
    )


def harmful(subject: str, details: list[str]) -> Declined:
    """A reader that was declared could not go on, whatever the level of the subject allows."""
    return Declined(
        INCOMPATIBLE,
        "Schema being registered breaks registered readers of subject "
        f'"{subject}", details: [{", ".join(details)}]',
    )


def invalid_schema(reason: str) -> Declined:
    """The text is no schema, or builds on what is not there."""
    return Declined(INVALID_SCHEMA, reason)


def invalid_version(version: str) -> Declined:
    """Neither a number in range nor `latest`."""
    return Declined(
        42202,
        f"The specified version '{version}' is not a valid version id. "
        'Allowed values are between [1, 2^31-1] and the string "latest"',
    )


def invalid_level() -> Declined:
    """No such compatibility level."""
    return Declined(
        42203,
        "Invalid compatibility level. Valid values are none, backward, forward, full, "
        "backward_transitive, forward_transitive, and full_transitive",
    )


def invalid_mode() -> Declined:
    """No such mode."""
    return Declined(
        42204,
        "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, IMPORT and FORWARD",
    )


def not_permitted(reason: str) -> Declined:
    """The mode of the subject forbids it, or an id would change its meaning."""
    return Declined(NOT_PERMITTED, reason)


def reference_exists(subject: str, version: int) -> Declined:
    """Others build on it."""
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
    return Declined(42206, f"One or more references exist to the schema {key}.")


def invalid_subject(subject: str) -> Declined:
    """A name no subject can have."""
    return Declined(42208, f"The specified subject '{subject}' is not a valid subject.")


def schema_too_large(reason: str) -> Declined:
    """Kafka would not take the record."""
    return Declined(42209, f"Register operation failed because schema is too large: {reason}")


def invalid_rule_set(reason: str) -> Declined:
    """The rules contradict themselves."""
    return Declined(INVALID_RULE_SET, f"Invalid rule set: {reason}")


def store_failed(reason: str) -> Declined:
    """The log could not be read or written."""
    return Declined(50001, f"Error in the backend data store: {reason}")


def timed_out(reason: str) -> Declined:
    """Nothing is known of what became of it."""
    return Declined(50002, f"Operation timed out: {reason}")


def forwarding_failed(reason: str) -> Declined:
    """The primary did not answer."""
    return Declined(50003, f"Error while forwarding the request to the primary: {reason}")


def not_installed(reason: str) -> Declined:
    """This registry lacks a library; Confluent has no code for it."""
    return Declined(50101, reason)


def primary_unknown() -> Declined:
    """Nobody may write at this moment; soon somebody will."""
    return Declined(50004, "The primary of the registry is not known at this moment; try again")
