"""DescribeClientQuotas and AlterClientQuotas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.broker.handler import Answer, Context, Forwards, Handler
from penstock.broker.permissions import Operation, on_cluster
from penstock.broker.replies import error_of, when_controller_decided
from penstock.coordination.controller.commands import AlterQuotas, QuotaChange
from penstock.errors import ErrorCode, Refused
from penstock.protocol.messages.quotas import (
    ALTER_CLIENT_QUOTAS,
    ANY,
    DEFAULT,
    DESCRIBE_CLIENT_QUOTAS,
    EXACT,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuotas,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedQuotas,
    QuotaComponent,
    QuotaEntityPart,
    QuotaValue,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.coordination.controller.events import QuotaEntity

_ENTITY_TYPES: Final = ("user", "client-id", "ip")


def describe_client_quotas(
    context: Context, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """The quotas whose entity matches every component; if strict, and has no other."""
    _check_filter(request.components)
    return DescribeClientQuotasResponse(
        entries=[
            DescribedQuotas(_parts(entity), [QuotaValue(*row) for row in sorted(limits.items())])
            for entity, limits in context.broker.cluster.state.quotas.items()
            if _matches(dict(entity), request)
        ]
    )


def _check_filter(components: Sequence[QuotaComponent]) -> None:
    types = [component.entity_type for component in components]
    if "" in types:
        raise Refused(ErrorCode.invalid_request, "an entity type is empty")
    unknown = [name for name in types if name not in _ENTITY_TYPES]
    if unknown:
        raise Refused(ErrorCode.unsupported_version, f"there is no entity type '{unknown[0]}'")
    if len(set(types)) != len(types):
        raise Refused(ErrorCode.invalid_request, "an entity type is given twice")
    if "ip" in types and len(types) > 1:
        raise Refused(ErrorCode.invalid_request, "ip cannot be combined with other entity types")
    for _, match_type, match in components:
        if match_type not in (EXACT, DEFAULT, ANY):
            raise Refused(ErrorCode.invalid_request, f"there is no match type {match_type}")
        if match_type == EXACT and match is None:
            raise Refused(ErrorCode.invalid_request, "an exact match needs a name")
        if match_type != EXACT and match is not None:
            raise Refused(ErrorCode.invalid_request, "only an exact match has a name")


def _matches(entity: dict[str, str | None], request: DescribeClientQuotasRequest) -> bool:
    for entity_type, match_type, match in request.components:
        if entity_type not in entity:
            return False
        name = entity[entity_type]
        if match_type == EXACT and name != match:
            return False
        if match_type == DEFAULT and name is not None:
            return False
    return not request.strict or len(request.components) == len(entity)


def alter_client_quotas(
    context: Context, request: AlterClientQuotasRequest
) -> Answer[AlterClientQuotasResponse]:
    """Set and remove limits; each entity on its own."""
    changes = tuple(
        QuotaChange(
            _entity(entry.entity),
            tuple((each.key, None if each.remove else each.value) for each in entry.ops),
        )
        for entry in request.entries
    )
    decided = context.broker.controller.submit(
        lambda caller: AlterQuotas(caller, changes, validate_only=request.validate_only)
    )

    def respond(results: Sequence[Refused | None]) -> AlterClientQuotasResponse:
        entities = [change.entity for change in changes]
        rows = dict(zip(entities, results, strict=True))  # an entity given twice has one row
        return AlterClientQuotasResponse(
            [AlteredQuotas(_parts(entity), *error_of(result)) for entity, result in rows.items()]
        )

    return when_controller_decided(context, request, decided, respond)


def _entity(parts: Sequence[QuotaEntityPart]) -> QuotaEntity:
    names = [(entity_type, name) for entity_type, name in parts]
    return tuple(sorted(names, key=lambda part: part[0]))


def _parts(entity: QuotaEntity) -> list[QuotaEntityPart]:
    return [QuotaEntityPart(*part) for part in entity]


HANDLERS = (
    Handler(
        DESCRIBE_CLIENT_QUOTAS,
        versions=(0, 1),
        handle=describe_client_quotas,
        allow=on_cluster(Operation.DESCRIBE_CONFIGS),
    ),
    Handler(
        ALTER_CLIENT_QUOTAS,
        forwards=Forwards.WHOLE,
        versions=(0, 1),
        handle=alter_client_quotas,
        allow=on_cluster(Operation.ALTER_CONFIGS),
    ),
)
