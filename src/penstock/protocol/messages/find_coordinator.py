"""FindCoordinator: the brokers that coordinate groups and transactional ids."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.errors import ErrorCode, Refused
from penstock.protocol.api import Api
from penstock.protocol.bind import Older, bind

GROUP: Final = 0  # key types
TRANSACTION: Final = 1
SHARE: Final = 2


class FindCoordinatorRequest(NamedTuple):
    coordinator_keys: Sequence[str]  # exactly one before version 4
    key_type: int = GROUP


class _FindOneCoordinator(NamedTuple):
    key: str
    key_type: int = GROUP


class CoordinatorEndpoint(NamedTuple):
    """The coordinator of one key, which is empty as read from versions before 4."""

    key: str
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = ""
    node_id: int = -1
    host: str = ""
    port: int = -1


class FindCoordinatorResponse(NamedTuple):
    coordinators: Sequence[CoordinatorEndpoint]


class _OneCoordinator(NamedTuple):
    error_code: ErrorCode
    error_message: str | None = ""
    node_id: int = -1
    host: str = ""
    port: int = -1


def _refuse(request: FindCoordinatorRequest, refusal: Refused) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        [
            CoordinatorEndpoint(key, refusal.code, refusal.message)
            for key in request.coordinator_keys
        ]
    )


FIND_COORDINATOR: Final = bind(
    Api.FIND_COORDINATOR,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    refuse=_refuse,
    older_request=Older(
        3,
        _FindOneCoordinator,
        lambda old: FindCoordinatorRequest((old.key,), old.key_type),
        lambda new: _FindOneCoordinator(new.coordinator_keys[0], new.key_type),
    ),
    older_response=Older(
        3,
        _OneCoordinator,
        lambda old: FindCoordinatorResponse((CoordinatorEndpoint("", *old),)),
        lambda new: _OneCoordinator(*new.coordinators[0][1:]),
    ),
)
