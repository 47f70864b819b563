"""Logins, users and rights: SASL, SCRAM credentials and ACLs."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.errors import ErrorCode, Refused
from penstock.protocol.api import Api
from penstock.protocol.bind import bind

LITERAL: Final = 3  # pattern type

# SaslHandshake and SaslAuthenticate.


class SaslHandshakeRequest(NamedTuple):
    mechanism: str


class SaslHandshakeResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    mechanisms: Sequence[str] = ()


SASL_HANDSHAKE: Final = bind(Api.SASL_HANDSHAKE, SaslHandshakeRequest, SaslHandshakeResponse)


class SaslAuthenticateRequest(NamedTuple):
    auth_bytes: bytes


class SaslAuthenticateResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    auth_bytes: bytes = b""
    session_lifetime_ms: int = 0  # unlimited


SASL_AUTHENTICATE: Final = bind(
    Api.SASL_AUTHENTICATE, SaslAuthenticateRequest, SaslAuthenticateResponse
)

# DescribeUserScramCredentials and AlterUserScramCredentials.


class ScramUser(NamedTuple):
    name: str


class DescribeUserScramCredentialsRequest(NamedTuple):
    users: Sequence[ScramUser] | None = None  # None: all


class ScramCredential(NamedTuple):
    mechanism: int
    iterations: int


class DescribedScramUser(NamedTuple):
    user: str
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    credential_infos: Sequence[ScramCredential] = ()


class DescribeUserScramCredentialsResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    results: Sequence[DescribedScramUser] = ()


DESCRIBE_USER_SCRAM_CREDENTIALS: Final = bind(
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)


class ScramDeletion(NamedTuple):
    name: str
    mechanism: int


class ScramUpsertion(NamedTuple):
    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class AlterUserScramCredentialsRequest(NamedTuple):
    deletions: Sequence[ScramDeletion] = ()
    upsertions: Sequence[ScramUpsertion] = ()


class AlteredScramUser(NamedTuple):
    user: str
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


class AlterUserScramCredentialsResponse(NamedTuple):
    results: Sequence[AlteredScramUser]


def _refuse_alter_scram(
    request: AlterUserScramCredentialsRequest, refusal: Refused
) -> AlterUserScramCredentialsResponse:
    names = dict.fromkeys(row.name for row in request.deletions)
    names |= dict.fromkeys(row.name for row in request.upsertions)
    return AlterUserScramCredentialsResponse(
        [AlteredScramUser(name, refusal.code, refusal.message) for name in names]
    )


ALTER_USER_SCRAM_CREDENTIALS: Final = bind(
    Api.ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    refuse=_refuse_alter_scram,
)

# DescribeAcls, CreateAcls, DeleteAcls.


class AclFilter(NamedTuple):
    """Which ACLs are meant. None: any."""

    resource_type_filter: int
    resource_name_filter: str | None
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int
    pattern_type_filter: int = LITERAL


DescribeAclsRequest = AclFilter


class AclDescription(NamedTuple):
    principal: str
    host: str
    operation: int
    permission_type: int


class AclResource(NamedTuple):
    resource_type: int
    resource_name: str
    acls: Sequence[AclDescription]
    pattern_type: int = LITERAL


class DescribeAclsResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    resources: Sequence[AclResource] = ()


DESCRIBE_ACLS: Final = bind(Api.DESCRIBE_ACLS, DescribeAclsRequest, DescribeAclsResponse)


class AclCreation(NamedTuple):
    resource_type: int
    resource_name: str
    principal: str
    host: str
    operation: int
    permission_type: int
    resource_pattern_type: int = LITERAL


class CreateAclsRequest(NamedTuple):
    creations: Sequence[AclCreation]


class AclCreationResult(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


class CreateAclsResponse(NamedTuple):
    results: Sequence[AclCreationResult]


def _refuse_create_acls(request: CreateAclsRequest, refusal: Refused) -> CreateAclsResponse:
    result = AclCreationResult(refusal.code, refusal.message)
    return CreateAclsResponse([result] * len(request.creations))


CREATE_ACLS: Final = bind(
    Api.CREATE_ACLS, CreateAclsRequest, CreateAclsResponse, refuse=_refuse_create_acls
)


class DeleteAclsRequest(NamedTuple):
    filters: Sequence[AclFilter]


class MatchingAcl(NamedTuple):
    """An ACL that a filter matched, and whether it was deleted."""

    resource_type: int
    resource_name: str
    principal: str
    host: str
    operation: int
    permission_type: int
    pattern_type: int = LITERAL
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


class DeleteAclsFilterResult(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    matching_acls: Sequence[MatchingAcl] = ()


class DeleteAclsResponse(NamedTuple):
    filter_results: Sequence[DeleteAclsFilterResult]


def _refuse_delete_acls(request: DeleteAclsRequest, refusal: Refused) -> DeleteAclsResponse:
    result = DeleteAclsFilterResult(refusal.code, refusal.message)
    return DeleteAclsResponse([result] * len(request.filters))


DELETE_ACLS: Final = bind(
    Api.DELETE_ACLS, DeleteAclsRequest, DeleteAclsResponse, refuse=_refuse_delete_acls
)
