"""The gateway's errors, and what a cluster's refusals are over HTTP: mapped in this one place.

The body of every error is `{"error": {"code": "…", "message": "…"}}`, with more members beside
`error` where a program needs them. Programs branch on `code`; `message` says what to do.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

from penstock.errors import ErrorCode, Malformed, Refused
from penstock.link.fetch_range import OffsetOutOfRange
from penstock.model import TopicPartition
from penstock.serde.errors import (
    ArgumentError,
    ClientError,
    EncodeError,
    RegistryUnavailableError,
    UnknownSchemaError,
)

RETRY_AFTER_S: Final = 1

# Refusals of a cluster by status; any other is 502, or 503 if it is worth a retry.
_STATUS: Final = {
    ErrorCode.unknown_topic_or_partition: HTTPStatus.NOT_FOUND,
    ErrorCode.unknown_topic_id: HTTPStatus.NOT_FOUND,
    ErrorCode.group_id_not_found: HTTPStatus.NOT_FOUND,
    ErrorCode.topic_already_exists: HTTPStatus.CONFLICT,
    ErrorCode.non_empty_group: HTTPStatus.CONFLICT,
    ErrorCode.inconsistent_group_protocol: HTTPStatus.CONFLICT,
    ErrorCode.invalid_topic_exception: HTTPStatus.BAD_REQUEST,
    ErrorCode.invalid_partitions: HTTPStatus.BAD_REQUEST,
    ErrorCode.invalid_replication_factor: HTTPStatus.BAD_REQUEST,
    ErrorCode.invalid_replica_assignment: HTTPStatus.BAD_REQUEST,
    ErrorCode.invalid_config: HTTPStatus.BAD_REQUEST,
    ErrorCode.invalid_request: HTTPStatus.BAD_REQUEST,
    ErrorCode.invalid_group_id: HTTPStatus.BAD_REQUEST,
    ErrorCode.invalid_session_timeout: HTTPStatus.BAD_REQUEST,
    ErrorCode.invalid_timestamp: HTTPStatus.BAD_REQUEST,
    ErrorCode.invalid_record: HTTPStatus.BAD_REQUEST,
    ErrorCode.invalid_commit_offset_size: HTTPStatus.BAD_REQUEST,
    ErrorCode.policy_violation: HTTPStatus.BAD_REQUEST,
    ErrorCode.message_too_large: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    ErrorCode.record_list_too_large: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    ErrorCode.topic_authorization_failed: HTTPStatus.FORBIDDEN,
    ErrorCode.group_authorization_failed: HTTPStatus.FORBIDDEN,
    ErrorCode.cluster_authorization_failed: HTTPStatus.FORBIDDEN,
    ErrorCode.transactional_id_authorization_failed: HTTPStatus.FORBIDDEN,
    ErrorCode.offset_out_of_range: HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
    ErrorCode.group_max_size_reached: HTTPStatus.TOO_MANY_REQUESTS,
}
# Codes of the gateway's own where Kafka's name would not say it.
_CODES: Final = {
    ErrorCode.unknown_topic_or_partition: "unknown_topic_or_partition",
    ErrorCode.invalid_topic_exception: "invalid_topic",
    ErrorCode.topic_already_exists: "topic_exists",
}


class GatewayError(Exception):
    """A request that is declined: a status, a code for programs, and a sentence for people."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.details: dict[str, Any] = dict(details or {})
        self.headers: dict[str, str] = dict(headers or {})

    @property
    def document(self) -> dict[str, Any]:
        """The body of the response."""
        return {"error": {"code": self.code, "message": self.message}, **self.details}


def write_error(status: int, code: str, message: str) -> bytes:
    """The body of an error that no service was reached for."""
    return msgspec.json.encode(GatewayError(status, code, message).document)


def bad_request(message: str, code: str = "invalid_request") -> GatewayError:
    return GatewayError(400, code, message)


def not_found(code: str, message: str) -> GatewayError:
    return GatewayError(404, code, message)


def unknown_partition(partition: TopicPartition, count: int) -> GatewayError:
    message = f"topic {partition.topic} has no partition {partition.partition}: it has {count}"
    return not_found("unknown_topic_or_partition", message)


def too_large(message: str) -> GatewayError:
    return GatewayError(413, "too_large", message)


def too_many(code: str, message: str, retry_after_s: int = RETRY_AFTER_S) -> GatewayError:
    return GatewayError(429, code, message, headers={"Retry-After": str(retry_after_s)})


def unavailable(message: str, code: str = "kafka_unavailable") -> GatewayError:
    return GatewayError(503, code, message, headers={"Retry-After": str(RETRY_AFTER_S)})


def as_gateway_error(failure: Exception) -> GatewayError:
    """What a failure below the gateway is over HTTP; a bug is raised again."""
    match failure:
        case GatewayError():
            return failure
        case OffsetOutOfRange():
            details = {"earliest": failure.start_offset, "latest": failure.end_offset}
            return GatewayError(416, "offset_out_of_range", failure.message, details=details)
        case Refused():
            return _refused(failure)
        case OSError():
            return unavailable(f"the Kafka cluster cannot be reached: {failure}")
        case Malformed():
            return GatewayError(
                502, "malformed", f"the cluster sent bytes that are not valid: {failure}"
            )
        case ClientError():
            return _client_error(failure)
    raise failure


def _refused(refusal: Refused) -> GatewayError:
    code = _CODES.get(refusal.code, refusal.code.name)
    status = _STATUS.get(refusal.code)
    if status is not None:
        return GatewayError(status, code, refusal.message)
    if refusal.code.retriable:
        return unavailable(refusal.message, code)
    return GatewayError(502, code, refusal.message)


def _client_error(error: ClientError) -> GatewayError:
    match error:
        case RegistryUnavailableError():
            return unavailable(str(error), "registry_unavailable")
        case UnknownSchemaError():
            return GatewayError(422, "unknown_schema", str(error))
        case EncodeError():
            return GatewayError(422, "invalid_value", str(error))
        case ArgumentError():
            return bad_request(str(error))
    return GatewayError(422, "invalid_schema", str(error))
