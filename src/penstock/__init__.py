"""Penstock: an event streaming platform for Python teams that speaks the Kafka protocol.

    from penstock import Consumer, Contract, Producer, Registry

Producer, Consumer              write and read events of a topic under a contract
AsyncProducer, AsyncConsumer    the same for asyncio
Registry, Contract              a schema registry, and a schema with how it is used
Event                           what a consumer returns
ClientError                     the base class of the errors below it

More of the client is in `penstock.client`, pipelines are in `penstock.spark`, and fixtures for
tests in `penstock.testing`.
"""

from typing import TYPE_CHECKING

from penstock.lazy import lazy_names
from penstock.version import __version__ as __version__

if TYPE_CHECKING:
    from penstock.client.aio import AsyncConsumer as AsyncConsumer
    from penstock.client.aio import AsyncProducer as AsyncProducer
    from penstock.client.consumer import Consumer as Consumer
    from penstock.client.errors import DeliveryError as DeliveryError
    from penstock.client.errors import WaitTimeoutError as WaitTimeoutError
    from penstock.client.event import Event as Event
    from penstock.client.producer import Producer as Producer
    from penstock.client.registry import Registry as Registry
    from penstock.client.transaction import TransactionAbortedError as TransactionAbortedError
    from penstock.serde.contract import Contract as Contract
    from penstock.serde.errors import ArgumentError as ArgumentError
    from penstock.serde.errors import ClientError as ClientError
    from penstock.serde.errors import DecodeError as DecodeError
    from penstock.serde.errors import EncodeError as EncodeError
    from penstock.serde.errors import RegistryRefusedError as RegistryRefusedError
    from penstock.serde.errors import RegistryUnavailableError as RegistryUnavailableError
    from penstock.serde.errors import UnsupportedRuleError as UnsupportedRuleError
else:
    __getattr__, __dir__ = lazy_names(__name__)
