"""The bodies of produce requests."""

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

ABSENT: Final = Raw()  # a JSON value that is not there; null is b"null"
SchemaNumber = Annotated[int, msgspec.Meta(ge=1, le=(1 << 31) - 1)]
Timestamp = Annotated[int, msgspec.Meta(ge=0, le=(1 << 53) - 1)]
PartitionNumber = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]


class SchemaChoices(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which schemas keys and values are written with; at most one choice for each."""

    key_schema_id: SchemaNumber | None = None
    key_schema_version: SchemaNumber | None = None  # of the subject <topic>-key
    key_schema: str | dict[str, Any] | None = None
    key_schema_type: str = "AVRO"
    value_schema_id: SchemaNumber | None = None
    value_schema_version: SchemaNumber | None = None  # of the subject <topic>-value
    value_schema: str | dict[str, Any] | None = None
    value_schema_type: str = "AVRO"


class RecordBody(SchemaChoices, forbid_unknown_fields=True, kw_only=True):
    """One record. A header's value is text, null or {"base64": …}."""

    key: Raw = msgspec.field(default_factory=lambda: ABSENT)
    key_base64: str | None = None
    value: Raw = msgspec.field(default_factory=lambda: ABSENT)
    value_base64: str | None = None
    headers: list[tuple[str, str | dict[str, str] | None]] = []
    timestamp: Timestamp | None = None
    partition: PartitionNumber | None = None


class ProduceBody(RecordBody, forbid_unknown_fields=True, kw_only=True):
    """One record, or several with schemas for all of them."""

    records: list[RecordBody] | UnsetType = UNSET
