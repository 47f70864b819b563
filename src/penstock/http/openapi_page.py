"""`/docs`: every path of the HTTP process on one page, made from the OpenAPI document.

The page needs no script, font or file from other servers, so it works without a network.
`/openapi.json` has the same for programs.
"""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

_Document = Mapping[str, Any]
_METHODS: Final = ("get", "post", "put", "patch", "delete")
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'"
_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --dim: #777; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p { margin: .4rem 0; } .dim { color: var(--dim); }
nav a { margin-right: 1rem; }
details { border: 1px solid var(--line); border-radius: 6px; margin: .35rem 0; }
summary { cursor: pointer; padding: .35rem .6rem; display: flex; gap: .7rem; }
summary > * { align-self: baseline; }
summary:hover { background: var(--soft); }
details > div { padding: .2rem .8rem .8rem; border-top: 1px solid var(--line); }
code { font: 13px/1.4 ui-monospace, monospace; overflow-wrap: anywhere; }
.method { font: 700 11px/1 ui-monospace, monospace; width: 4em; flex: none; text-align: center;
  border-radius: 4px; padding: .3em 0; color: #fff; }
.get { background: #2f6fb3; } .post { background: #2d7d46; }
.put, .patch { background: #96650d; }
pre { background: var(--soft); border-radius: 4px; padding: .5rem .7rem; overflow-x: auto;
  font: 13px/1.4 ui-monospace, monospace; }
.delete { background: #b03a3a; }
summary .dim { margin-left: auto; text-align: right; }
table { border-collapse: collapse; width: 100%; } caption { text-align: left; font-weight: 600; }
th, td { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0;
  border-bottom: 1px solid var(--line); font-weight: 400; }
@media (max-width: 40rem) { summary { flex-wrap: wrap; } summary .dim { margin: 0; } }
"""


ROOTS: Final = frozenset((b"docs", b"openapi.json"))


def reference(
    documents: Sequence[Callable[[], _Document]],
    others: Mapping[str, Callable[[], _Document]] | None = None,
) -> Starlette:
    """The page and the document, made on the first request from those of all services.

    `others` are documents that OpenAPI has no place for, by path.
    """
    made: list[tuple[_Document, str]] = []

    def document_and_page() -> tuple[_Document, str]:
        if not made:
            document = merged([each() for each in documents])
            made.append((document, render(document)))
        return made[0]

    async def read_page(_request: Request) -> Response:
        return HTMLResponse(document_and_page()[1], headers={"content-security-policy": _POLICY})

    async def read_document(_request: Request) -> Response:
        return JSONResponse(document_and_page()[0])

    return Starlette(
        routes=[
            Route("/docs", read_page),
            Route("/openapi.json", read_document),
            *(Route(path, _reading(make)) for path, make in (others or {}).items()),
        ],
    )


def _reading(make: Callable[[], _Document]) -> Callable[[Request], Awaitable[Response]]:
    async def read(_request: Request) -> Response:
        return JSONResponse(make())

    return read


def merged(documents: Sequence[_Document]) -> _Document:
    """One document with the paths of all; the first one's title."""
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    for document in documents:
        paths |= document["paths"]
        schemas |= document.get("components", {}).get("schemas", {})
    first = documents[0]
    return {
        "openapi": first["openapi"],
        "info": first["info"],
        "paths": paths,
        "components": {"schemas": schemas},
    }


def render(document: _Document) -> str:
    """The page as HTML."""
    groups = grouped(document)
    links = "".join(f'<a href="#{escape(name)}">{escape(name)}</a>' for name in groups)
    sections = "".join(_section(name, operations) for name, operations in groups.items())
    title = escape(f"{document['info']['title']} {document['info']['version']}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>"
        '<p class="dim">All paths of this node. For programs: '
        '<a href="openapi.json">openapi.json</a></p>'
        f"<nav>{links}</nav>{sections}</body></html>"
    )


def grouped(document: _Document) -> dict[str, list[tuple[str, str, _Document]]]:
    """Method, path and description of all operations, by tag."""
    groups: dict[str, list[tuple[str, str, _Document]]] = {}
    for path, operations in document["paths"].items():
        for method in _METHODS:
            if method in operations:
                (name, *_) = operations[method].get("tags") or ["other"]
                groups.setdefault(name, []).append((method, path, operations[method]))
    return groups


def _section(name: str, operations: Sequence[tuple[str, str, _Document]]) -> str:
    rows = "".join(_operation(*operation) for operation in operations)
    return f'<section><h2 id="{escape(name)}">{escape(name)}</h2>{rows}</section>'


def _operation(method: str, path: str, operation: _Document) -> str:
    sentence, *more = (operation.get("description") or operation["summary"]).split("\n\n")
    details = "".join(
        (
            *(f"<p>{escape(paragraph)}</p>" for paragraph in more),
            _table("Parameters", _parameters(operation)),
            _table("Body, a JSON object", _members(operation)),
            *_examples(operation),
        )
    )
    return (
        f'<details><summary><span class="method {method}">{method.upper()}</span>'
        f'<code>{escape(path)}</code><span class="dim">{escape(sentence)}</span></summary>'
        f"<div>{details or '<p>Takes nothing else.</p>'}</div></details>"
    )


def _parameters(operation: _Document) -> Iterator[tuple[str, str, str]]:
    for parameter in operation.get("parameters", ()):
        schema = parameter["schema"]
        default = schema.get("default")
        shown_default = "" if default in (None, "") else f"default {default}".lower()
        sentences = (parameter.get("description", ""), shown_default)
        description = ". ".join(text.rstrip(".") for text in sentences if text)
        yield parameter["name"], f"{_kind(schema)}, in the {parameter['in']}", description


def _members(operation: _Document) -> Iterator[tuple[str, str, str]]:
    contents = operation.get("requestBody", {}).get("content", {}).values()
    for content in contents:
        for name, schema in content["schema"].get("properties", {}).items():
            yield name, _kind(schema), " | ".join(schema.get("enum", ()))


def _examples(operation: _Document) -> Iterator[str]:
    """Worked examples: bodies to send, and responses to them."""
    contents = operation.get("requestBody", {}).get("content", {}).values()
    for content in contents:
        for example in content.get("examples", {}).values():
            yield _example(f"Send: {example['summary']}", example["value"])
    for status, response in operation.get("responses", {}).items():
        for content in response.get("content", {}).values():
            if "example" in content:
                yield _example(f"Response {status}", content["example"])


def _example(caption: str, value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=1)
    return f"<p>{escape(caption)}</p><pre>{escape(text)}</pre>"


def _kind(schema: _Document) -> str:
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"] if each.get("type") != "null")
    if schema.get("type") == "array":
        items = schema.get("items")
        return f"array of {_kind(items)}" if isinstance(items, Mapping) else "array"
    return str(schema.get("type", "any"))


def _table(caption: str, rows: Iterator[tuple[str, str, str]]) -> str:
    lines = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(kind)}</td><td>{escape(text)}</td></tr>"
        for name, kind, text in rows
    )
    return f"<table><caption>{caption}</caption>{lines}</table>" if lines else ""
