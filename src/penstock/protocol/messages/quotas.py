"""Client quotas: DescribeClientQuotas, AlterClientQuotas."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.errors import ErrorCode, Refused
from penstock.protocol.api import Api
from penstock.protocol.bind import bind

EXACT: Final = 0  # match types
DEFAULT: Final = 1
ANY: Final = 2


class QuotaComponent(NamedTuple):
    """A part of an entity that is looked for: a user, a client id, an address."""

    entity_type: str
    match_type: int
    match: str | None  # set if the match type is EXACT


class DescribeClientQuotasRequest(NamedTuple):
    components: Sequence[QuotaComponent]
    strict: bool = False  # no entities with other components


class QuotaEntityPart(NamedTuple):
    entity_type: str
    entity_name: str | None  # None: the default


class QuotaValue(NamedTuple):
    key: str
    value: float


class DescribedQuotas(NamedTuple):
    """The quotas of one entity."""

    entity: Sequence[QuotaEntityPart]
    values: Sequence[QuotaValue]


class DescribeClientQuotasResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    entries: Sequence[DescribedQuotas] | None = ()


DESCRIBE_CLIENT_QUOTAS: Final = bind(
    Api.DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest, DescribeClientQuotasResponse
)


class QuotaOperation(NamedTuple):
    key: str
    value: float
    remove: bool = False


class QuotasToAlter(NamedTuple):
    entity: Sequence[QuotaEntityPart]
    ops: Sequence[QuotaOperation]


class AlterClientQuotasRequest(NamedTuple):
    entries: Sequence[QuotasToAlter]
    validate_only: bool = False


class AlteredQuotas(NamedTuple):
    entity: Sequence[QuotaEntityPart]
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


class AlterClientQuotasResponse(NamedTuple):
    entries: Sequence[AlteredQuotas]


def _refuse_alter(request: AlterClientQuotasRequest, refusal: Refused) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        [AlteredQuotas(entry.entity, refusal.code, refusal.message) for entry in request.entries]
    )


ALTER_CLIENT_QUOTAS: Final = bind(
    Api.ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    refuse=_refuse_alter,
)
