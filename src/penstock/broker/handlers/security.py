"""ACLs, credentials and tokens on a broker without an authorizer: served, and refused.

The error codes are those of Apache Kafka without an authorizer, which clients and tools know.
"""

from __future__ import annotations

from collections import Counter

from penstock.broker.handler import Context, Handler
from penstock.broker.permissions import (
    ANYONE,
    PER_ITEM,
    Operation,
    Permission,
    ResourceType,
    on_cluster,
)
from penstock.broker.replies import error_of
from penstock.errors import ErrorCode, Refused
from penstock.protocol.messages.delegation_tokens import (
    CREATE_DELEGATION_TOKEN,
    DESCRIBE_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from penstock.protocol.messages.security import (
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_ACLS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    AclFilter,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsResponse,
    DescribedScramUser,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)


def _no_acls() -> Refused:
    return Refused(
        ErrorCode.security_disabled, "this broker has no authorizer: all requests are allowed"
    )


def describe_acls(_context: Context, _request: AclFilter) -> DescribeAclsResponse:
    """There are none."""
    raise _no_acls()


def create_acls(_context: Context, _request: CreateAclsRequest) -> CreateAclsResponse:
    """None can be created."""
    raise _no_acls()


def delete_acls(_context: Context, _request: DeleteAclsRequest) -> DeleteAclsResponse:
    """None can be deleted."""
    raise _no_acls()


_NO_TOKENS = "delegation tokens need a secret key, which this broker does not have"


def create_delegation_token(
    _context: Context, _request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """Tokens are disabled."""
    raise Refused(ErrorCode.delegation_token_auth_disabled, _NO_TOKENS)


def renew_delegation_token(
    _context: Context, _request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """Tokens are disabled."""
    raise Refused(ErrorCode.delegation_token_auth_disabled, _NO_TOKENS)


def expire_delegation_token(
    _context: Context, _request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """Tokens are disabled."""
    raise Refused(ErrorCode.delegation_token_auth_disabled, _NO_TOKENS)


def describe_delegation_token(
    _context: Context, _request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """Only authenticated clients may describe tokens, and there is no authentication yet."""
    raise Refused(
        ErrorCode.delegation_token_request_not_allowed, "the connection is not authenticated"
    )


def describe_user_scram_credentials(
    _context: Context, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """No user has credentials: an empty list for all users, "not found" for each named one."""
    counts = Counter(user.name for user in request.users or ())
    unknown = Refused(ErrorCode.resource_not_found, "the user has no credentials")
    twice = Refused(ErrorCode.duplicate_resource, "the user is given twice")
    return DescribeUserScramCredentialsResponse(
        results=[
            DescribedScramUser(user, *error_of(unknown if count == 1 else twice))
            for user, count in counts.items()
        ]
    )


HANDLERS = (
    Handler(
        DESCRIBE_ACLS,
        versions=(1, 3),
        handle=describe_acls,
        allow=on_cluster(Operation.DESCRIBE),
    ),
    Handler(CREATE_ACLS, versions=(1, 3), handle=create_acls, allow=on_cluster(Operation.ALTER)),
    Handler(DELETE_ACLS, versions=(1, 3), handle=delete_acls, allow=on_cluster(Operation.ALTER)),
    Handler(
        CREATE_DELEGATION_TOKEN,
        versions=(1, 3),
        handle=create_delegation_token,
        allow=Permission(Operation.CREATE_TOKENS, ResourceType.USER, PER_ITEM),
    ),
    # The owner and the renewers of a token may do this; no ACL is needed.
    Handler(RENEW_DELEGATION_TOKEN, versions=(1, 2), handle=renew_delegation_token, allow=ANYONE),
    Handler(EXPIRE_DELEGATION_TOKEN, versions=(1, 2), handle=expire_delegation_token, allow=ANYONE),
    Handler(
        DESCRIBE_DELEGATION_TOKEN,
        versions=(1, 3),
        handle=describe_delegation_token,
        allow=Permission(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, PER_ITEM),
    ),
    Handler(
        DESCRIBE_USER_SCRAM_CREDENTIALS,
        versions=(0, 0),
        handle=describe_user_scram_credentials,
        allow=on_cluster(Operation.DESCRIBE),
    ),
)
