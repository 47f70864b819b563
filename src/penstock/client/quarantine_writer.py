"""Puts unreadable events into quarantine, and says when they are safely there.

An offset may be committed only after what could not be read before it has arrived in quarantine:
`settle` waits for that, and raises if it did not.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.client.delivery import Deliveries, Outbox, Outgoing
from penstock.client.kafka_errors import connected
from penstock.client.quarantine import Origin, Verdict, quarantine_topic, write_envelope
from penstock.link.settings import connection_settings
from penstock.serde.errors import ClientError, DeliveryError

logger = logging.getLogger(__name__)

SETTLE_S: Final = 60.0
_TOPIC_SETTINGS: Final = {
    "cleanup.policy": "delete",
    "retention.ms": str(30 * 24 * 3600 * 1000),  # time enough to look, and not for ever
    "max.message.bytes": str(16 << 20),  # the original at its largest, and the envelope
}
_ADMIN_S: Final = 10.0


class QuarantineError(ClientError):
    """An event could neither be read nor be put aside; nothing was committed past it."""

    retriable = True


class QuarantineWriter:
    """For one consumer; the topics are made when they are first needed.

    `settings` are librdkafka's for the producer in here, and say how brokers are reached.
    """

    def __init__(self, bootstrap: str, settings: Mapping[str, Any] | None = None) -> None:
        self._bootstrap = bootstrap
        self._settings = dict(settings or {})
        self._outbox: Outbox | None = None  # most consumers never need one
        self._known_topics: set[str] = set()
        self._deliveries = Deliveries()
        self.put_total = 0

    @property
    def is_waiting(self) -> bool:
        """Whether something was put that `settle` has not seen to."""
        return self._deliveries.sent > 0

    def put(self, origin: Origin, verdict: Verdict) -> None:
        """Send it on its way."""
        record = self.record(origin, verdict)
        if self._outbox is None:
            self._outbox = Outbox(
                self._bootstrap, {"message.max.bytes": 16 << 20, **self._settings}
            )
        try:
            self._deliveries.put_all(self._outbox, [record])
        except ClientError as failure:
            raise _not_put(record.topic, str(failure)) from failure

    def record(self, origin: Origin, verdict: Verdict) -> Outgoing:
        """The record for a transaction of somebody else's; its topic is there after this."""
        topic = quarantine_topic(origin.topic)
        self._make(topic, origin.topic)
        self.put_total += 1
        headers = write_envelope(origin, verdict)
        return Outgoing(topic, origin.key, origin.value, headers)

    def settle(self) -> None:
        """Wait until all that was put is there; raises QuarantineError if some of it is not.

        Once that was raised it is raised for ever: offsets past a lost event must not be stored.
        """
        if not self.is_waiting:
            return
        try:
            self._deliveries.wait(SETTLE_S)
        except (DeliveryError, TimeoutError) as failure:
            raise _not_put("quarantine", str(failure)) from failure
        self._deliveries = Deliveries()

    def close(self) -> None:
        """Deliver what is under way, and stop."""
        if self._outbox is not None:
            self._outbox.close()

    def _make(self, topic: str, origin_topic: str) -> None:
        if topic in self._known_topics:
            return
        admin = connected(AdminClient, self._bootstrap, connection_settings(self._settings))
        try:
            found = admin.list_topics(origin_topic, timeout=_ADMIN_S).topics[origin_topic]
            wanted = NewTopic(topic, max(1, len(found.partitions)), config=_TOPIC_SETTINGS)
            admin.create_topics([wanted])[topic].result(_ADMIN_S)
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                # It may be there, or be made by the first record; if not, delivery says so.
                logger.warning("%s could not be made: %s", topic, error.str())
        self._known_topics.add(topic)


def _not_put(topic: str, why: str) -> QuarantineError:
    return QuarantineError(
        f"an unreadable event could not be put into {topic}: {why}. Create the topic and let this "
        "client write to it, or read with on_undecodable=OnUndecodable.SKIP or RAISE."
    )
