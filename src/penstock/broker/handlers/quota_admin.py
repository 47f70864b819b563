"""DescribeClientQuotas and AlterClientQuotas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kio.static.protocol import Entity

from penstock.broker.handler import Answer, Context, Handler
from penstock.broker.handlers.replies import (
    controller_of,
    error_fields,
    respond,
    when_controller_decided,
)
from penstock.coordination.controller.commands import AlterQuotas, QuotaChange
from penstock.coordination.controller.events import QuotaEntity
from penstock.errors import ErrorCode, Refused

DESCRIBE_CLIENT_QUOTAS: Final = 48
ALTER_CLIENT_QUOTAS: Final = 49

_EXACT: Final = 0  # match types
_DEFAULT: Final = 1
_ANY: Final = 2
_KINDS: Final = ("user", "client-id", "ip")


def describe_client_quotas(context: Context, request: Any) -> Answer:
    """The quotas whose entity has every asked component; strict: and no other."""
    _check_filter(request.components)
    found = [
        (entity, limits)
        for entity, limits in controller_of(context).state.quotas.items()
        if _matches(dict(entity), request)
    ]
    return respond(
        context,
        error_code=ErrorCode.none,
        entries=[
            {
                "entity": _entity_fields(entity),
                "values": [{"key": key, "value": value} for key, value in sorted(limits.items())],
            }
            for entity, limits in found
        ],
    )


def _check_filter(components: Sequence[Any]) -> None:
    kinds = [component.entity_type for component in components]
    if "" in kinds:
        raise Refused(ErrorCode.invalid_request, "a type of entity is empty")
    unknown = [kind for kind in kinds if kind not in _KINDS]
    if unknown:
        raise Refused(
            ErrorCode.unsupported_version, f"entities of type '{unknown[0]}' are not known"
        )
    if len(set(kinds)) != len(kinds):
        raise Refused(ErrorCode.invalid_request, "a type of entity is asked for twice")
    if "ip" in kinds and len(kinds) > 1:
        raise Refused(ErrorCode.invalid_request, "an ip has its quotas by itself")
    for component in components:
        if component.match_type not in (_EXACT, _DEFAULT, _ANY):
            raise Refused(ErrorCode.invalid_request, f"no match type {component.match_type}")
        if component.match_type == _EXACT and component.match is None:
            raise Refused(ErrorCode.invalid_request, "an exact match needs a name")
        if component.match_type != _EXACT and component.match is not None:
            raise Refused(ErrorCode.invalid_request, "only an exact match has a name")


def _matches(entity: dict[str, str | None], request: Any) -> bool:
    for component in request.components:
        if component.entity_type not in entity:
            return False
        name = entity[component.entity_type]
        if component.match_type == _EXACT and name != component.match:
            return False
        if component.match_type == _DEFAULT and name is not None:
            return False
    return not request.strict or len(request.components) == len(entity)


def alter_client_quotas(context: Context, request: Any) -> Answer:
    """Set and take away limits; each entity by itself."""
    changes = tuple(
        QuotaChange(
            _entity(entry.entity),
            tuple((op.key, None if op.remove else op.value) for op in entry.ops),
        )
        for entry in request.entries
    )
    decided = controller_of(context).submit(
        lambda caller: AlterQuotas(caller, changes, validate_only=request.validate_only)
    )

    def answer(results: Sequence[Refused | None]) -> Entity:
        named = [change.entity for change in changes]
        rows = dict(zip(named, results, strict=True))  # what is named twice is answered once
        return respond(
            context,
            entries=[
                {"entity": _entity_fields(entity), **error_fields(result)}
                for entity, result in rows.items()
            ],
        )

    return when_controller_decided(
        decided, answer, lambda refusal: answer([refusal] * len(changes))
    )


def _entity(parts: Sequence[Any]) -> QuotaEntity:
    named = [(part.entity_type, part.entity_name) for part in parts]
    return tuple(sorted(named, key=lambda each: each[0]))


def _entity_fields(entity: QuotaEntity) -> list[dict[str, Any]]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in entity]


HANDLERS = (
    Handler(DESCRIBE_CLIENT_QUOTAS, versions=(0, 1), handle=describe_client_quotas),
    Handler(ALTER_CLIENT_QUOTAS, versions=(0, 1), handle=alter_client_quotas),
)
