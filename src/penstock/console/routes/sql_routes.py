"""`/sql`: queries over topics, their result, and cancelling them."""

import json
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Request, Response

from penstock.console.console_node import ConsoleNode
from penstock.console.sql.sql_request import SqlBody
from penstock.console.sql.sql_runner import SqlRunner
from penstock.extras import MissingExtraError, require
from penstock.gateway.errors import GatewayError
from penstock.gateway.json_responses import json_response
from penstock.gateway.request_bodies import described_body, described_response, read_document
from penstock.registry.subject_names import Subject
from penstock.schemas.model import SchemaText, SchemaType

BODY_BYTES_MAX: Final = 1 << 20
RECORD_COLUMNS: Final = ("_partition", "_offset", "_timestamp", "_key", "_error")
_RESULT: Final = {
    "id": "q1",
    "columns": [{"name": "city", "type": "VARCHAR"}, {"name": "orders", "type": "BIGINT"}],
    "rows": [["berlin", 2]],
    "truncated": False,
    "scanned": {"orders": "2 of 2"},
    "seconds": 0.4,
}


def sql_routes(node: ConsoleNode) -> APIRouter:
    """SQL over topics."""
    router = APIRouter(tags=["sql"])
    gateway = node.gateway
    runner = SqlRunner(gateway.settings.kafka, gateway.settings.registry_url)
    gateway.on_stop(runner.stop)

    @router.post(
        "/sql",
        openapi_extra=described_body(
            SqlBody,
            a_count={"query": "select city, count(*) as orders from orders group by city"},
            since_a_time={"query": "select * from orders", "from": {"time": "1700000000000"}},
        ),
        responses=described_response(_RESULT, "The rows, and how much of each topic was read."),
    )
    async def run_sql(request: Request) -> Response:
        """Run one SELECT; every topic is a table. Large integers are text.

        `truncated`: the result or what was read is cut at a limit. Cancel with DELETE /sql/{id}.
        """
        body = await read_document(request, SqlBody, BODY_BYTES_MAX)
        try:
            require("sql")
        except MissingExtraError as missing:
            raise GatewayError(501, "not_installed", str(missing)) from None
        return json_response(await runner.run(body))

    @router.delete("/sql/{id}", status_code=204)
    async def cancel_sql(id_: Annotated[str, Path(alias="id")]) -> Response:
        """Cancel a query that is running."""
        runner.cancel(id_)
        return Response(status_code=204)

    @router.get("/sql/tables")
    async def list_tables() -> Response:
        """Topics as tables, with the columns that are known without reading records."""
        sample = await node.sampler.sample()
        rows = []
        for topic in sample.topics or ():
            if not topic.is_internal:
                fields = _value_columns(node, topic.name)
                rows.append({"name": topic.name, "columns": [*fields, *RECORD_COLUMNS]})
        return json_response({"tables": rows})

    return router


def _value_columns(node: ConsoleNode, topic: str) -> list[str]:
    subject = Subject(f"{topic}-value")
    latest = node.registry.state.latest(subject)
    return ["value"] if latest is None else field_names(latest.contents.source)


def field_names(source: SchemaText) -> list[str]:
    """The fields of a record, or properties of an object; none where they are not listed."""
    if source.type is SchemaType.PROTOBUF:
        return []
    document: Any = json.loads(source.text)
    if not isinstance(document, dict):
        return ["value"]
    if source.type is SchemaType.AVRO:
        fields = document.get("fields")
        return ["value"] if fields is None else [str(field["name"]) for field in fields]
    return [str(name) for name in document.get("properties", {})]
