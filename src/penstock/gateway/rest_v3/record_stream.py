"""The stream of `records`: a report for each record leaves while the body is still read.

The body is any number of JSON objects one after the other. Reports come in order; once one was
sent the status is 200 and errors are only in reports. A body that is not JSON ends the stream with
a last report as soon as that is certain. A cluster that cannot be reached at the first record is a
503, so that a client retries the whole request. Plain ASGI: the response begins before the request
has ended.
"""

import json
import re
from codecs import getincrementaldecoder
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, Final, TypeAlias

import msgspec
from starlette.responses import Response

from penstock.gateway.errors import GatewayError, bad_request
from penstock.gateway.request_bodies import body_too_large
from penstock.gateway.rest_v3.shapes import error_fields, error_response
from penstock.http.site import Receive, Scope, Send

_BAD_REQUEST: Final = 400
_UNAVAILABLE: Final = 503
_HEADERS: Final = [(b"content-type", b"application/json")]
# What an object that is not complete may end with, from where it is not JSON: nothing, an open
# string, or the beginning of an escape, a literal or the rest of a number.
_BEGINNING: Final = re.compile(
    r'\s*|"(?:[^"\\]|\\.)*\\?|u[0-9a-fA-F]{0,4}|-|n(ul?)?|t(ru?)?|f(a(ls?)?)?|\.|[eE][+-]?',
    re.DOTALL,
)


class SideBody(msgspec.Struct):
    """A key or value: data, and how it is written."""

    data: Any = None
    type: str | None = None
    subject: str | None = None
    schema_id: int | None = None
    schema_version: int | None = None
    schema: str | None = None


class HeaderBody(msgspec.Struct):
    """A header; the value is base64."""

    name: str
    value: str | None = None


class V3Record(msgspec.Struct):
    """One record."""

    partition_id: int | None = None
    headers: list[HeaderBody] = []
    key: SideBody | None = None
    value: SideBody | None = None
    timestamp: str | None = None


WriteRecord: TypeAlias = Callable[[V3Record], Awaitable[dict[str, Any]]]


class RecordStream(Response):
    """Writes the records of one request."""

    def __init__(self, write: WriteRecord, record_bytes_max: int) -> None:
        super().__init__()
        self._write = write
        self._record_bytes_max = record_bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI calls it."""
        is_open = False
        async for document in _documents(receive, self._record_bytes_max):
            result = await self._report(document)
            if isinstance(result, GatewayError):
                if not is_open and result.status == _UNAVAILABLE:
                    await error_response(result)(scope, receive, send)
                    return
                _, result = error_fields(result)
            if not is_open:
                is_open = True
                await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            body = msgspec.json.encode(result) + b"\r\n"
            await send({"type": "http.response.body", "body": body, "more_body": True})
        if is_open:
            await send({"type": "http.response.body", "body": b""})
        else:
            await error_response(bad_request("the body has no record"))(scope, receive, send)

    async def _report(self, document: Any) -> dict[str, Any] | GatewayError:
        if isinstance(document, GatewayError):  # the last one
            return {"error_code": _BAD_REQUEST, "message": document.message}
        try:
            return await self._write(msgspec.convert(document, V3Record))
        except msgspec.ValidationError as error:
            return {"error_code": _BAD_REQUEST, "message": str(error)}
        except GatewayError as error:
            return error


async def _documents(receive: Receive, bytes_max: int) -> AsyncIterator[Any]:
    """The JSON objects of a body as they arrive; the last one is an error if it is not JSON."""
    decode_text = getincrementaldecoder("utf-8")().decode
    text, more = "", True
    while more:
        message: MutableMapping[str, Any] = await receive()
        if message["type"] == "http.disconnect":
            return
        more = bool(message.get("more_body"))
        try:
            text = (text + decode_text(message.get("body", b""), not more)).lstrip()
            while text:
                document, end = _DECODER.raw_decode(text)
                if not isinstance(document, dict):
                    yield bad_request("the body is not a sequence of JSON objects")
                    return
                yield document
                text = text[end:].lstrip()
        except json.JSONDecodeError as error:
            if not more or not _BEGINNING.fullmatch(text, error.pos):
                yield bad_request(f"the body is not JSON: {error}")
                return
        except (ValueError, RecursionError) as error:
            yield bad_request(f"the body is not JSON: {error}")
            return
        if len(text) > bytes_max:
            yield body_too_large(bytes_max)
            return


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)
