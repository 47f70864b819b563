"""Resources, lists and errors as Confluent's REST API v3 has them."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.errors import GatewayError

PREFIX: Final = "v3_prefix"  # in a scope: the path that the client used, /v3 or /kafka/v3
_CODES: Final = {400: 40002, 401: 40101, 403: 40301, 408: 40801, 413: 413, 502: 50002, 503: 50003}
_TOPIC_CODE: Final = 40403
_CODES_BY_NAME: Final = {
    "unknown_topic_or_partition": _TOPIC_CODE,
    "unknown_schema": 42205,
    "invalid_schema": 42205,
    "invalid_value": 42207,
    "invalid_record": 42206,
    "invalid_batch": 42208,
    "topic_exists": 40002,
}
_STATUS_BY_NAME: Final = {"topic_exists": 400, "invalid_record": 422}


class Links(NamedTuple):
    """Builds the URLs of resources for one request."""

    base: str
    cluster: str

    def url(self, *path: object) -> str:
        """The absolute URL of a path below the cluster."""
        parts = [quote(str(each), safe="") for each in path]
        return "/".join((f"{self.base}/clusters/{self.cluster}", *parts))

    def name(self, *pairs: tuple[str, object]) -> str:
        """A resource name: crn:///kafka=C/topic=T."""
        parts = [("kafka", self.cluster), *pairs]
        return "crn:///" + "/".join(f"{kind}={value}" for kind, value in parts)

    def related(self, *path: object) -> dict[str, str]:
        """A relationship."""
        return {"related": self.url(*path)}

    def resource(
        self, kind: str, path: Sequence[object], resource_name: str | None, /, **fields: Any
    ) -> dict[str, Any]:
        """A resource with its metadata."""
        metadata = {"self": self.url(*path), "resource_name": resource_name}
        return {"kind": kind, "metadata": metadata, "cluster_id": self.cluster, **fields}

    def listing(self, kind: str, path: Sequence[object], rows: Sequence[Any]) -> dict[str, Any]:
        """A list; there are no pages."""
        return {"kind": kind, "metadata": {"self": self.url(*path), "next": None}, "data": rows}


def base_url(request: Request) -> str:
    """Where the client reached the API."""
    host = request.headers.get("host", "localhost")
    return f"{request.scope['scheme']}://{host}{request.scope[PREFIX]}"


def error_fields(error: GatewayError) -> tuple[int, dict[str, Any]]:
    """Status and body of an error."""
    status = _STATUS_BY_NAME.get(error.code, error.status)
    code = _CODES_BY_NAME.get(error.code) or _CODES.get(status, status)
    return status, {"error_code": code, "message": error.message}


def error_response(error: GatewayError) -> Response:
    """The form of every error."""
    status, body = error_fields(error)
    return json_response(body, status, error.headers)


def write_error(status: int, _code: str, message: str) -> bytes:
    """The body of an error that no route was reached for."""
    return msgspec.json.encode({"error_code": status, "message": message})


def json_response(
    document: Any, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """A document as JSON."""
    return Response(msgspec.json.encode(document), status, headers, "application/json")
