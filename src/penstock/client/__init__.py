"""Events in a program's hands: produce and consume under contracts, one by one or as columns.

    from penstock.client import Consumer, Contract, Producer, Registry

Producer, Consumer          a topic under a contract; transactions, commit modes, quarantine
AsyncProducer, AsyncConsumer, AsyncRegistry    the same for asyncio
Registry                    a registry over HTTP, and the two caches
Contract                    a schema and how it is used
Serializer, Deserializer    one event <-> the bytes of a record
BatchSerializer, BatchDeserializer             many events <-> Arrow
ClientMetrics               all counts for Prometheus
Tracing                     spans and trace context for OpenTelemetry

Names are imported when they are first used: Arrow and the kernels are heavy, and few need all.
"""

from typing import TYPE_CHECKING

from penstock.lazy import lazy_names

if TYPE_CHECKING:
    from penstock.client.aio import AsyncConsumer as AsyncConsumer
    from penstock.client.aio import AsyncProducer as AsyncProducer
    from penstock.client.aio import AsyncRegistry as AsyncRegistry
    from penstock.client.commit_tracker import CommitMode as CommitMode
    from penstock.client.consumer import Consumer as Consumer
    from penstock.client.decode_filter import OnDecodeError as OnDecodeError
    from penstock.client.delivery import Deliveries as Deliveries
    from penstock.client.delivery import RecordMetadata as RecordMetadata
    from penstock.client.errors import DeliveryError as DeliveryError
    from penstock.client.errors import WaitTimeoutError as WaitTimeoutError
    from penstock.client.event import Event as Event
    from penstock.client.event_batch import EventBatch as EventBatch
    from penstock.client.flow_control import FlowLimits as FlowLimits
    from penstock.client.metrics import ClientMetrics as ClientMetrics
    from penstock.client.producer import KEY_HASH as KEY_HASH
    from penstock.client.producer import Producer as Producer
    from penstock.client.producer import RoundRobin as RoundRobin
    from penstock.client.producer import Sticky as Sticky
    from penstock.client.quarantine import quarantine_topic as quarantine_topic
    from penstock.client.quarantine import read_quarantined as read_quarantined
    from penstock.client.registry import Registry as Registry
    from penstock.client.tracing import Tracing as Tracing
    from penstock.client.transaction import TransactionAbortedError as TransactionAbortedError
    from penstock.model import TopicPartition as TopicPartition
    from penstock.schemas.readers import Reader as Reader
    from penstock.serde.batch_serializers import BatchDeserializer as BatchDeserializer
    from penstock.serde.batch_serializers import BatchSerializer as BatchSerializer
    from penstock.serde.contract import Contract as Contract
    from penstock.serde.contract import Form as Form
    from penstock.serde.contract import SubjectNames as SubjectNames
    from penstock.serde.errors import ArgumentError as ArgumentError
    from penstock.serde.errors import ClientError as ClientError
    from penstock.serde.errors import DecodeError as DecodeError
    from penstock.serde.errors import EncodeError as EncodeError
    from penstock.serde.errors import Reason as Reason
    from penstock.serde.errors import RegistryRefusedError as RegistryRefusedError
    from penstock.serde.errors import RegistryUnavailableError as RegistryUnavailableError
    from penstock.serde.errors import UnsupportedRuleError as UnsupportedRuleError
    from penstock.serde.serializers import Deserializer as Deserializer
    from penstock.serde.serializers import Serializer as Serializer
else:
    __getattr__, __dir__ = lazy_names(__name__)
