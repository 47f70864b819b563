"""What a request needs the right to do, in Kafka's terms: a part of each handler's row.

Nothing is enforced yet: there are no ACLs. The rows are data, for the documentation and for the
authorizer to come. A whole request is refused when one of the resources named by `names` is denied;
with PER_ITEM the handler decides for each of its items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from penstock.protocol.messages.metadata import OPERATIONS_NOT_REQUESTED

CLUSTER_NAME: Final = "kafka-cluster"  # the one resource of type CLUSTER

RequestT = TypeVar("RequestT", contravariant=True)


class Operation(IntEnum):
    """Kafka's operations and their codes."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class ResourceType(IntEnum):
    """Kafka's resource types and their codes."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


_OPERATIONS: Final = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}


def all_operations(resource: ResourceType) -> int:
    """Everything that may be done to a resource: a bit for each operation, as responses have it."""
    return sum(1 << operation for operation in _OPERATIONS[resource])


def requested_operations(resource: ResourceType, is_requested: bool) -> int:
    """As `all_operations` if the client requests them, else the value that stands for none."""
    return all_operations(resource) if is_requested else OPERATIONS_NOT_REQUESTED


class PerItem(Enum):
    """The handler asks for each item of the request."""

    PER_ITEM = "each"


PER_ITEM: Final = PerItem.PER_ITEM
Names: TypeAlias = Callable[[RequestT], Iterable[str]] | PerItem


@dataclass(frozen=True, slots=True)
class Permission(Generic[RequestT]):
    """The right to one operation on the resources that a request names."""

    operation: Operation
    resource: ResourceType
    names: Names[RequestT]

    def __str__(self) -> str:
        each = "each " if self.names is PER_ITEM else ""
        return f"{self.operation.name} on {each}{self.resource.name}"


class AllOf(Generic[RequestT]):
    """Every one of these is needed; none: anyone may send the request."""

    __slots__ = ("rules",)

    def __init__(self, *rules: Rule[RequestT]) -> None:
        self.rules: tuple[Rule[RequestT], ...] = rules

    def __str__(self) -> str:
        return ", ".join(map(str, self.rules)) or "none"


class AnyOf(Generic[RequestT]):
    """One of these is enough."""

    __slots__ = ("rules",)

    def __init__(self, *rules: Rule[RequestT]) -> None:
        self.rules: tuple[Rule[RequestT], ...] = rules

    def __str__(self) -> str:
        return " or ".join(map(str, self.rules))


Rule: TypeAlias = Permission[RequestT] | AllOf[RequestT] | AnyOf[RequestT]
ANYONE: Final[AllOf[Any]] = AllOf()


def _the_cluster(_request: object) -> tuple[str]:
    return (CLUSTER_NAME,)


def on_cluster(operation: Operation) -> Permission[Any]:
    """On the cluster as a whole."""
    return Permission(operation, ResourceType.CLUSTER, _the_cluster)


def on_each_topic(operation: Operation) -> Permission[Any]:
    """On each topic of the request, for itself."""
    return Permission(operation, ResourceType.TOPIC, PER_ITEM)


def on_each_group(operation: Operation) -> Permission[Any]:
    """On each group of the request, for itself."""
    return Permission(operation, ResourceType.GROUP, PER_ITEM)


def on_group(operation: Operation) -> Permission[Any]:
    """On the `group_id` of the request."""
    return Permission(operation, ResourceType.GROUP, lambda request: (request.group_id,))


def on_transactional_id(operation: Operation) -> Permission[Any]:
    """On the `transactional_id` of the request, if it has one."""
    return Permission(operation, ResourceType.TRANSACTIONAL_ID, _transactional_ids)


class _Transactional(Protocol):
    @property
    def transactional_id(self) -> str | None: ...


def _transactional_ids(request: _Transactional) -> tuple[str, ...]:
    return () if request.transactional_id is None else (request.transactional_id,)
