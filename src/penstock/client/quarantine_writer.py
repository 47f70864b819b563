"""Writes unreadable events to quarantine, and waits until they are there.

An offset may be committed only after the unreadable events before it are in quarantine: `wait`
waits for that, and raises if one could not be written.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.client.delivery import Deliveries, OutgoingRecord, RecordSender
from penstock.client.errors import DeliveryError
from penstock.client.kafka_errors import connect_client
from penstock.client.quarantine import (
    MESSAGE_BYTES_MAX,
    TOPIC_SETTINGS,
    DecodeFailure,
    OriginalRecord,
    quarantine_topic,
    write_envelope,
)
from penstock.link.settings import connection_settings
from penstock.serde.errors import ClientError

logger: Final = logging.getLogger(__name__)

WAIT_S: Final = 60.0
_ADMIN_S: Final = 10.0


class QuarantineError(ClientError):
    """An event could neither be read nor be quarantined; nothing was committed past it."""

    retriable = True


class QuarantineWriter:
    """For one consumer; quarantine topics are created when they are first needed.

    `settings` are librdkafka's for the producer in here, and say how to connect.
    """

    def __init__(self, bootstrap: str, settings: Mapping[str, Any] | None = None) -> None:
        self._bootstrap = bootstrap
        self._settings = dict(settings or {})
        self._sender: RecordSender | None = None  # most consumers never need one
        self._known_topics: set[str] = set()
        self._deliveries = Deliveries()
        self.written_total: int = 0

    @property
    def has_pending(self) -> bool:
        """Whether something was written that `wait` has not confirmed."""
        return self._deliveries.sent > 0

    def write(self, origin: OriginalRecord, failure: DecodeFailure) -> None:
        """Send a record to quarantine; returns before it is there."""
        record = self.record(origin, failure)
        if self._sender is None:
            own = {"message.max.bytes": MESSAGE_BYTES_MAX, **self._settings}
            self._sender = RecordSender(self._bootstrap, own)
        try:
            self._deliveries.send_all(self._sender, [record])
        except ClientError as error:
            raise _not_written(record.topic, str(error)) from error

    def record(self, origin: OriginalRecord, failure: DecodeFailure) -> OutgoingRecord:
        """The record for a transaction of another producer; creates its topic."""
        topic = quarantine_topic(origin.topic)
        self._create(topic, origin.topic)
        self.written_total += 1
        return OutgoingRecord(topic, origin.key, origin.value, write_envelope(origin, failure))

    def wait(self) -> None:
        """Wait until all that was written is there; raises QuarantineError if some of it is not.

        Every later call raises again: offsets past a lost event must not be committed.
        """
        if not self.has_pending:
            return
        try:
            self._deliveries.wait(WAIT_S)
        except (DeliveryError, TimeoutError) as failure:
            raise _not_written("quarantine", str(failure)) from failure
        self._deliveries = Deliveries()

    def close(self) -> None:
        """Deliver what is in flight, and stop."""
        if self._sender is not None:
            self._sender.close()

    def _create(self, topic: str, origin_topic: str) -> None:
        if topic in self._known_topics:
            return
        connection = connection_settings(self._settings)
        admin = connect_client(AdminClient, self._bootstrap, connection)
        try:
            metadata = admin.list_topics(origin_topic, timeout=_ADMIN_S).topics[origin_topic]
            new_topic = NewTopic(topic, max(1, len(metadata.partitions)), config=TOPIC_SETTINGS)
            admin.create_topics([new_topic])[topic].result(_ADMIN_S)
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                # It may exist, or the first record may create it; if not, its delivery fails.
                logger.warning("cannot create %s: %s", topic, error.str())
        self._known_topics.add(topic)


def _not_written(topic: str, reason: str) -> QuarantineError:
    return QuarantineError(
        f"an unreadable event could not be written to {topic}: {reason}. Create the topic and "
        "allow this client to write to it, or use on_decode_error=OnDecodeError.SKIP or RAISE."
    )
