"""ACLs, credentials and tokens on a broker without an authoriser: answered, and refused.

The codes are those of Apache Kafka without an authoriser, which clients and tools know.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from penstock.broker.handler import Answer, Context, Handler
from penstock.broker.handlers.replies import error_fields, respond
from penstock.errors import ErrorCode, Refused

DESCRIBE_ACLS: Final = 29
CREATE_ACLS: Final = 30
DELETE_ACLS: Final = 31
CREATE_DELEGATION_TOKEN: Final = 38
RENEW_DELEGATION_TOKEN: Final = 39
EXPIRE_DELEGATION_TOKEN: Final = 40
DESCRIBE_DELEGATION_TOKEN: Final = 41
DESCRIBE_USER_SCRAM_CREDENTIALS: Final = 50

_NO_ACLS: Final = {
    "error_code": ErrorCode.security_disabled,
    "error_message": "this broker has no authoriser: everybody may do everything",
}
_NO_TOKENS: Final = {"error_code": ErrorCode.delegation_token_auth_disabled}


def describe_acls(context: Context, request: Any) -> Answer:
    """There are none to describe."""
    return respond(context, **_NO_ACLS)


def create_acls(context: Context, request: Any) -> Answer:
    """None can be made."""
    return respond(context, results=[_NO_ACLS for _ in request.creations])


def delete_acls(context: Context, request: Any) -> Answer:
    """None can be deleted."""
    return respond(context, filter_results=[_NO_ACLS for _ in request.filters])


def refuse_token(context: Context, request: Any) -> Answer:
    """Tokens need a secret key, which this broker has not."""
    return respond(context, **_NO_TOKENS)


def refuse_to_describe_tokens(context: Context, request: Any) -> Answer:
    """Whoever has not proved who he is may not even ask; nobody can prove it here."""
    return respond(context, error_code=ErrorCode.delegation_token_request_not_allowed)


def describe_user_scram_credentials(context: Context, request: Any) -> Answer:
    """Nobody has any: of all users that is an empty list, of a named one it is "not found"."""
    asked = Counter(user.name for user in request.users or ())
    none = Refused(ErrorCode.resource_not_found, "the user has no credentials here")
    twice = Refused(ErrorCode.duplicate_resource, "the user is asked for twice")
    return respond(
        context,
        error_code=ErrorCode.none,
        results=[
            {"user": user, **error_fields(none if count == 1 else twice)}
            for user, count in asked.items()
        ],
    )


HANDLERS = (
    Handler(DESCRIBE_ACLS, versions=(1, 3), handle=describe_acls),
    Handler(CREATE_ACLS, versions=(1, 3), handle=create_acls),
    Handler(DELETE_ACLS, versions=(1, 3), handle=delete_acls),
    Handler(CREATE_DELEGATION_TOKEN, versions=(1, 3), handle=refuse_token),
    Handler(RENEW_DELEGATION_TOKEN, versions=(1, 2), handle=refuse_token),
    Handler(EXPIRE_DELEGATION_TOKEN, versions=(1, 2), handle=refuse_token),
    Handler(DESCRIBE_DELEGATION_TOKEN, versions=(1, 3), handle=refuse_to_describe_tokens),
    Handler(
        DESCRIBE_USER_SCRAM_CREDENTIALS, versions=(0, 0), handle=describe_user_scram_credentials
    ),
)
