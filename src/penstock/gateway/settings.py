"""The gateway's settings: rows with a name, a default and a meaning, and the view of the code."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

from penstock.errors import ErrorCode, Refused


class SettingRow(NamedTuple):
    """A setting that a person may choose; all are whole numbers."""

    name: str
    default: int
    meaning: str


ROWS: Final = (
    SettingRow("body_bytes_max", 16 << 20, "Largest body of a request."),
    SettingRow("records_max", 10_000, "Most records in one produce request."),
    SettingRow("fetch_bytes_max", 16 << 20, "Most bytes of records that one fetch returns."),
    SettingRow("wait_ms_max", 60_000, "Longest time that a request may wait for events."),
    SettingRow("streams_per_client_max", 2_000, "Most streams of one client address."),
    SettingRow("stream_in_flight_bytes_max", 256 << 10, "Most bytes in flight of one stream."),
    SettingRow("stream_cache_bytes_max", 64 << 20, "Most bytes of events kept for streams."),
    SettingRow("members_max", 1_000, "Most members of consumer groups in this process."),
    SettingRow("requests_max", 1_000, "Most requests of the gateway at a time."),
    SettingRow("idempotency_ms", 24 * 3600 * 1000, "How long an idempotency key is remembered."),
    SettingRow("keys_max", 200_000, "Most idempotency keys that are remembered."),
)


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """What the gateway is started with; a field for each row, and how to reach the others."""

    kafka: Mapping[str, str]  # properties of a Kafka client, the bootstrap servers included
    registry_url: str
    body_bytes_max: int
    records_max: int
    fetch_bytes_max: int
    wait_ms_max: int
    streams_per_client_max: int
    stream_in_flight_bytes_max: int
    stream_cache_bytes_max: int
    members_max: int
    requests_max: int
    idempotency_ms: int
    keys_max: int


def gateway_settings(
    kafka: Mapping[str, str], registry_url: str, given: Mapping[str, Any]
) -> GatewaySettings:
    """The settings with these values; Refused for a name or value that there is not."""
    defaults = {row.name: row.default for row in ROWS}
    for name, value in given.items():
        if name not in defaults:
            known = ", ".join(sorted(defaults))
            raise Refused(ErrorCode.invalid_config, f"no setting {name!r}; there are {known}")
        if not str(value).isdecimal() or not int(value):
            raise Refused(ErrorCode.invalid_config, f"{name} {value!r} is not a number above 0")
        defaults[name] = int(value)
    assert {field.name for field in fields(GatewaySettings)} - {"kafka", "registry_url"} == set(
        defaults
    ), "a field for each row"
    return GatewaySettings(kafka, registry_url, **defaults)
