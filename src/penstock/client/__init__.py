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
    from penstock.client.batches import BatchDeserializer, BatchSerializer
    from penstock.client.consumer import Consumer
    from penstock.client.contract import Contract, Form
    from penstock.client.errors import (
        ArgumentError,
        ClientError,
        DeliveryFailed,
        Reason,
        RegistryRefused,
        RegistryUnavailable,
        Undecodable,
        Unencodable,
        UnsupportedRule,
        WaitTimeoutError,
    )
    from penstock.client.event import Event
    from penstock.client.event_batch import EventBatch
    from penstock.client.flow import FlowLimits
    from penstock.client.metrics import ClientMetrics
    from penstock.client.partitioners import KEY_HASH, RoundRobin, Sticky
    from penstock.client.producer import Producer
    from penstock.client.progress import Commits
    from penstock.client.registry import Registry
    from penstock.client.serializers import Deserializer, Serializer
    from penstock.client.sieve import OnUndecodable
    from penstock.client.subjects import SubjectNames
    from penstock.client.transaction import TransactionAborted
    from penstock.schemas.readers import Reader

_HOMES: Final = {
    "aio": ("AsyncConsumer", "AsyncProducer", "AsyncRegistry"),
    "batches": ("BatchDeserializer", "BatchSerializer"),
    "consumer": ("Consumer",),
    "contract": ("Contract", "Form"),
    "errors": (
        "ArgumentError",
        "ClientError",
        "DeliveryFailed",
        "Reason",
        "RegistryRefused",
        "RegistryUnavailable",
        "Undecodable",
        "Unencodable",
        "UnsupportedRule",
        "WaitTimeoutError",
    ),
    "event": ("Event",),
    "event_batch": ("EventBatch",),
    "flow": ("FlowLimits",),
    "metrics": ("ClientMetrics",),
    "partitioners": ("KEY_HASH", "RoundRobin", "Sticky"),
    "producer": ("Producer",),
    "progress": ("Commits",),
    "registry": ("Registry",),
    "serializers": ("Deserializer", "Serializer"),
    "sieve": ("OnUndecodable",),
    "subjects": ("SubjectNames",),
    "transaction": ("TransactionAborted",),
}
_MODULES: Final = {
    name: f"penstock.client.{home}" for home, names in _HOMES.items() for name in names
}
_MODULES["Reader"] = "penstock.schemas.readers"

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
    "DeliveryFailed",
    "Deserializer",
    "Event",
    "EventBatch",
    "FlowLimits",
    "Form",
    "OnUndecodable",
    "Producer",
    "Reader",
    "Reason",
    "Registry",
    "RegistryRefused",
    "RegistryUnavailable",
    "RoundRobin",
    "Serializer",
    "Sticky",
    "SubjectNames",
    "TransactionAborted",
    "Undecodable",
    "Unencodable",
    "UnsupportedRule",
    "WaitTimeoutError",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"penstock.client has no {name}; it has {', '.join(__all__)}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
