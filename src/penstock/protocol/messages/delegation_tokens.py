"""Delegation tokens: create, renew, expire, describe."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.errors import ErrorCode
from penstock.protocol.api import Api
from penstock.protocol.bind import bind


class TokenPrincipal(NamedTuple):
    principal_type: str
    principal_name: str


class CreateDelegationTokenRequest(NamedTuple):
    renewers: Sequence[TokenPrincipal] = ()
    max_lifetime_ms: int = -1  # the broker's maximum
    owner_principal_type: str | None = None
    owner_principal_name: str | None = None


class CreateDelegationTokenResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: str = ""
    token_requester_principal_name: str = ""
    issue_timestamp_ms: int = 0
    expiry_timestamp_ms: int = 0
    max_timestamp_ms: int = 0
    token_id: str = ""
    hmac: bytes = b""


CREATE_DELEGATION_TOKEN: Final = bind(
    Api.CREATE_DELEGATION_TOKEN, CreateDelegationTokenRequest, CreateDelegationTokenResponse
)


class RenewDelegationTokenRequest(NamedTuple):
    hmac: bytes
    renew_period_ms: int


class RenewDelegationTokenResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    expiry_timestamp_ms: int = 0


RENEW_DELEGATION_TOKEN: Final = bind(
    Api.RENEW_DELEGATION_TOKEN, RenewDelegationTokenRequest, RenewDelegationTokenResponse
)


class ExpireDelegationTokenRequest(NamedTuple):
    hmac: bytes
    expiry_time_period_ms: int


class ExpireDelegationTokenResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    expiry_timestamp_ms: int = 0


EXPIRE_DELEGATION_TOKEN: Final = bind(
    Api.EXPIRE_DELEGATION_TOKEN, ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
)


class DescribeDelegationTokenRequest(NamedTuple):
    owners: Sequence[TokenPrincipal] | None = None  # None: any


class DescribedToken(NamedTuple):
    principal_type: str
    principal_name: str
    issue_timestamp: int
    expiry_timestamp: int
    max_timestamp: int
    token_id: str
    hmac: bytes
    renewers: Sequence[TokenPrincipal] = ()
    token_requester_principal_type: str = ""
    token_requester_principal_name: str = ""


class DescribeDelegationTokenResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    tokens: Sequence[DescribedToken] = ()


DESCRIBE_DELEGATION_TOKEN: Final = bind(
    Api.DESCRIBE_DELEGATION_TOKEN, DescribeDelegationTokenRequest, DescribeDelegationTokenResponse
)
