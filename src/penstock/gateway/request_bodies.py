"""Requests: names in paths, options in queries, bodies as typed documents."""

from typing import Annotated, Any, TypeVar
from urllib.parse import unquote

import msgspec
from fastapi import Path, Request
from pydantic import BeforeValidator

from penstock.gateway.errors import GatewayError, bad_request, too_large

T = TypeVar("T")

TopicName = Annotated[str, Path(description="The name of a topic."), BeforeValidator(unquote)]
GroupName = Annotated[
    str, Path(description="A consumer group; slashes in it as %2F."), BeforeValidator(unquote)
]

SubjectName = Annotated[
    str, Path(description="A subject; slashes in it as %2F."), BeforeValidator(unquote)
]
MemberName = Annotated[
    str, Path(description="A member, as subscribe returned it."), BeforeValidator(unquote)
]


async def read_body(request: Request, bytes_max: int) -> bytes:
    """The whole body, of at most so many bytes."""
    chunks, size_bytes = [], 0
    async for chunk in request.stream():
        size_bytes += len(chunk)
        if size_bytes > bytes_max:
            raise body_too_large(bytes_max)
        chunks.append(chunk)
    return b"".join(chunks)


def body_too_large(bytes_max: int) -> GatewayError:
    return too_large(f"the body has more than {bytes_max} bytes: send it in several requests")


def read_json(body: bytes, kind: type[T]) -> T:
    """A body as a document of a type; 400 says what is wrong and where."""
    try:
        body.decode()  # values that are passed on as they are must be text too
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise bad_request(f"the body is not as expected: {error}", "invalid_body") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"the body is not JSON: {error}", "invalid_body") from None
    except RecursionError:
        raise bad_request("the body is nested too deeply", "invalid_body") from None


async def read_document(request: Request, kind: type[T], bytes_max: int) -> T:
    """The body of a request as a document of a type."""
    return read_json(await read_body(request, bytes_max), kind)


def described_body(kind: Any, **examples: Any) -> dict[str, Any]:
    """A body for the OpenAPI document: the schema of its type, and examples by summary."""
    content: dict[str, Any] = {"schema": schema_of(kind)}
    if examples:
        content["examples"] = {
            name: {"summary": name.replace("_", " "), "value": value}
            for name, value in examples.items()
        }
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


def schema_of(kind: Any) -> dict[str, Any]:
    """The JSON Schema of a type, on its own: nested types are written where they are used."""
    schema = msgspec.json.schema(kind)
    definitions = schema.pop("$defs", {})
    inlined = _inline(schema, definitions)
    assert isinstance(inlined, dict)
    return inlined


def _inline(part: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(part, list):
        return [_inline(each, definitions) for each in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _inline(definitions[part["$ref"].rpartition("/")[2]], definitions)
    return {name: _inline(each, definitions) for name, each in part.items() if name != "title"}


def described_response(example: Any, description: str, status: int = 200) -> dict[int | str, Any]:
    """A response for the OpenAPI document, with an example."""
    return {
        status: {"description": description, "content": {"application/json": {"example": example}}}
    }
