"""Events in a program's hands: produce and consume under contracts, one by one or as columns.

    from penstock.client import Consumer, Contract, Producer, Registry

Producer, Consumer          a topic under a contract; transactions, commit modes, quarantine
AsyncProducer, AsyncConsumer, AsyncRegistry    the same for asyncio
Registry                    a registry over HTTP, and the two caches
Contract                    a schema and how it is used
Serializer, Deserializer    one event <-> the bytes of a record
BatchSerializer, BatchDeserializer             many events <-> Arrow
ClientMetrics               all counts for Prometheus

Names are imported when they are first used: Arrow and the kernels are heavy, and few need all.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.client.aio import AsyncConsumer, AsyncProducer, AsyncRegistry
    from penstock.client.commit_tracker import Commits
    from penstock.client.consumer import Consumer
    from penstock.client.decode_filter import OnUndecodable
    from penstock.client.event import Event
    from penstock.client.event_batch import EventBatch
    from penstock.client.flow_control import FlowLimits
    from penstock.client.metrics import ClientMetrics
    from penstock.client.producer import KEY_HASH, Producer, RoundRobin, Sticky
    from penstock.client.registry import Registry
    from penstock.client.transaction import TransactionAbortedError
    from penstock.schemas.readers import Reader
    from penstock.serde.batch_serializers import BatchDeserializer, BatchSerializer
    from penstock.serde.contract import Contract, Form, SubjectNames
    from penstock.serde.errors import (
        ArgumentError,
        ClientError,
        DecodeError,
        DeliveryError,
        EncodeError,
        Reason,
        RegistryRefusedError,
        RegistryUnavailableError,
        UnsupportedRuleError,
        WaitTimeoutError,
    )
    from penstock.serde.serializers import Deserializer, Serializer

_HOMES: Final = {
    "penstock.client.aio": ("AsyncConsumer", "AsyncProducer", "AsyncRegistry"),
    "penstock.client.commit_tracker": ("Commits",),
    "penstock.client.consumer": ("Consumer",),
    "penstock.client.decode_filter": ("OnUndecodable",),
    "penstock.serde.errors": (
        "ArgumentError",
        "ClientError",
        "DeliveryError",
        "Reason",
        "RegistryRefusedError",
        "RegistryUnavailableError",
        "DecodeError",
        "EncodeError",
        "UnsupportedRuleError",
        "WaitTimeoutError",
    ),
    "penstock.client.event": ("Event",),
    "penstock.client.event_batch": ("EventBatch",),
    "penstock.client.flow_control": ("FlowLimits",),
    "penstock.client.metrics": ("ClientMetrics",),
    "penstock.client.producer": ("KEY_HASH", "Producer", "RoundRobin", "Sticky"),
    "penstock.client.registry": ("Registry",),
    "penstock.client.transaction": ("TransactionAbortedError",),
    "penstock.schemas.readers": ("Reader",),
    "penstock.serde.batch_serializers": ("BatchDeserializer", "BatchSerializer"),
    "penstock.serde.contract": ("Contract", "Form", "SubjectNames"),
    "penstock.serde.serializers": ("Deserializer", "Serializer"),
}
_MODULES: Final = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "KEY_HASH",
    "ArgumentError",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncRegistry",
    "BatchDeserializer",
    "BatchSerializer",
    "ClientError",
    "ClientMetrics",
    "Commits",
    "Consumer",
    "Contract",
    "DecodeError",
    "DeliveryError",
    "Deserializer",
    "EncodeError",
    "Event",
    "EventBatch",
    "FlowLimits",
    "Form",
    "OnUndecodable",
    "Producer",
    "Reader",
    "Reason",
    "Registry",
    "RegistryRefusedError",
    "RegistryUnavailableError",
    "RoundRobin",
    "Serializer",
    "Sticky",
    "SubjectNames",
    "TransactionAbortedError",
    "UnsupportedRuleError",
    "WaitTimeoutError",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"penstock.client has no {name}; it has {', '.join(__all__)}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
