"""The stream of `records`: a report for each record leaves while the body is still read.

The body is any number of JSON objects one after the other. Reports come in order; once one was
sent the status is 200 and errors are only in reports. An object that is not JSON ends the stream
with a last report. A cluster that cannot be reached at the first record is a 503, so that a client
retries the whole request. Plain ASGI: the response begins before the request has ended.
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
_IN_OBJECT: Final = re.compile(r'["{}]')
_IN_STRING: Final = re.compile(r'["\\]')


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
    text, scan, more = "", ObjectScan(), True
    while more:
        message: MutableMapping[str, Any] = await receive()
        if message["type"] == "http.disconnect":
            return
        more = bool(message.get("more_body"))
        try:
            text = (text + decode_text(message.get("body", b""), not more)).lstrip()
            while (end := scan.find_end(text)) is not None:
                yield _DECODER.decode(text[:end])
                text, scan = text[end:].lstrip(), ObjectScan()
            if text and not (more and text.startswith("{")):
                raise ValueError("it is not a sequence of objects")
        except (ValueError, RecursionError) as error:
            yield bad_request(f"the body is not JSON: {error}")
            return
        if len(text) > bytes_max:
            yield body_too_large(bytes_max)
            return


class ObjectScan:
    """Finds the end of the JSON object at the start of a growing text.

    Each character is read once, however many parts the object arrives in. Whether the object is
    valid is left to the decoder.
    """

    def __init__(self) -> None:
        self._position = 0
        self._depth = 0
        self._is_in_string = False

    def find_end(self, text: str) -> int | None:
        """The position behind the object; None if more is needed, or there is no object."""
        if not text.startswith("{"):
            return None
        while found := (_IN_STRING if self._is_in_string else _IN_OBJECT).search(
            text, self._position
        ):
            character = found[0]
            if character == "\\":
                if found.end() == len(text):
                    self._position = found.start()  # what it escapes has yet to arrive
                    return None
                self._position = found.end() + 1
                continue
            self._position = found.end()
            if character == '"':
                self._is_in_string = not self._is_in_string
            else:
                self._depth += 1 if character == "{" else -1
                if self._depth == 0:
                    return self._position
        self._position = len(text)
        return None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)
