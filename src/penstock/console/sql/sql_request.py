"""A query and its limits, as the HTTP process passes them to a worker."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

QUERY_CHARACTERS_MAX: Final = 100_000
ROWS_MAX: Final = 10_000
RECORDS_MAX: Final = 5_000_000
SECONDS_MAX: Final = 300
SCAN_BYTES_MAX: Final = 1 << 30
Place = Literal["earliest", "latest"] | dict[str, str | int]


class SqlLimits(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What a query may cost; what is beyond is left out and reported, or ends the query.

    `records` and `scan_bytes` are of all topics together.
    """

    rows: Annotated[int, msgspec.Meta(ge=1, le=ROWS_MAX)] = 1_000  # of the result
    result_bytes: Annotated[int, msgspec.Meta(ge=1, le=32 << 20)] = 8 << 20
    records: Annotated[int, msgspec.Meta(ge=1, le=RECORDS_MAX)] = 1_000_000  # read
    scan_bytes: Annotated[int, msgspec.Meta(ge=1, le=SCAN_BYTES_MAX)] = (
        256 << 20
    )  # of them, decoded
    memory_mb: Annotated[int, msgspec.Meta(ge=16, le=4096)] = 512  # of DuckDB, beside the records
    seconds: Annotated[float, msgspec.Meta(gt=0, le=SECONDS_MAX)] = 30.0  # after its start


class SqlBody(msgspec.Struct, forbid_unknown_fields=True):
    """A query over topics, each a table by its name.

    `reader` is the version of the subject that values are read as, by topic. `from` and `until` are
    earliest, latest, {"offset": n} or {"time": ms}, for all topics. `id` is for cancelling.
    """

    query: Annotated[str, msgspec.Meta(min_length=1, max_length=QUERY_CHARACTERS_MAX)]
    reader: dict[str, int] = {}
    from_: Place = msgspec.field(default="earliest", name="from")
    until: Place = "latest"
    limits: SqlLimits = SqlLimits()
    id: Annotated[str, msgspec.Meta(min_length=1, max_length=100)] | None = None


class WorkerRequest(msgspec.Struct):
    """What a worker is given on its standard input."""

    kafka: Mapping[str, str]  # properties of a Kafka client; passwords are not for command lines
    registry_url: str
    body: SqlBody


class SqlResult(msgspec.Struct, tag="result"):
    """The rows of a query."""

    columns: list[dict[str, str]]
    rows: list[list[Any]]
    truncated: bool
    scanned: dict[str, str]  # by topic: how many records of how many
    seconds: float


class SqlFailure(msgspec.Struct, tag="failure"):
    """Why there is no result: a status of HTTP, a code and a sentence."""

    status: int
    code: str
    message: str
