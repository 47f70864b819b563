"""Which subject of the registry a topic's keys and values are registered under."""

from enum import StrEnum
from typing import assert_never

from penstock.client.errors import ClientError
from penstock.client.frame import Side


class SubjectNames(StrEnum):
    """The strategies, by the names that other clients' settings give them."""

    TOPIC = "TopicNameStrategy"  # orders-value: one type of event per topic
    RECORD = "RecordNameStrategy"  # com.shop.Order: the same contract in every topic
    TOPIC_RECORD = "TopicRecordNameStrategy"  # orders-com.shop.Order: several types in a topic

    @property
    def needs_record(self) -> bool:
        """Whether the schema's own name is part of the subject."""
        return self is not SubjectNames.TOPIC


def subject_name(names: SubjectNames, topic: str, side: Side, record_name: str | None) -> str:
    """The subject; `record_name` is the full record or message name, the title in JSON Schema."""
    if names is SubjectNames.TOPIC:
        return f"{topic}-{side}"
    if not record_name:
        raise ClientError(
            f"{names} needs a name in the schema of {topic}: a record (Avro), a message "
            "(Protobuf) or a title (JSON Schema). Name it, or use TopicNameStrategy."
        )
    match names:
        case SubjectNames.RECORD:
            return record_name
        case SubjectNames.TOPIC_RECORD:
            return f"{topic}-{record_name}"
        case _:
            assert_never(names)
