"""`/pipelines`: streaming queries, as they last reported to their topic."""

from fastapi import APIRouter, Response

from penstock.client.pipeline_reports import TOPIC, PipelineReport, read_report
from penstock.console.console_node import ConsoleNode
from penstock.console.read_whole import read_whole
from penstock.errors import ErrorCode, Refused
from penstock.gateway.json_responses import json_response


def pipeline_routes(node: ConsoleNode) -> APIRouter:
    """Pipelines."""
    router = APIRouter(tags=["pipelines"])

    @router.get("/pipelines")
    async def list_pipelines() -> Response:
        """Streaming queries with their rates, watermark, lag and last error.

        `stale`: the query was silent for three of its triggers.
        """
        now = node.clock()
        reports = sorted(await _reports(node), key=lambda row: (row.name or "", row.id))
        return json_response({"pipelines": [row.document(now) for row in reports]})

    return router


async def _reports(node: ConsoleNode) -> list[PipelineReport]:
    """The latest report of each query; none if no query has ever reported."""
    latest: dict[str, PipelineReport] = {}
    try:
        contents = await read_whole(node.gateway, TOPIC)
    except Refused as refusal:
        if refusal.code is not ErrorCode.unknown_topic_or_partition:
            raise
        return []
    for _, record in contents.records:
        report = read_report(record.value)
        if report is not None:
            latest[report.id] = report
        elif record.key is not None:
            latest.pop(record.key.decode(errors="replace"), None)
    return list(latest.values())
