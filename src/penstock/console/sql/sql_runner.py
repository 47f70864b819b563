"""Runs queries in workers: at most two at a time, each with a deadline, each can be cancelled."""

import asyncio
import sys
import uuid
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from penstock.console.sql.sql_request import SqlBody, SqlFailure, SqlResult, WorkerRequest
from penstock.gateway.errors import GatewayError, not_found, too_many

RUNNING_MAX: Final = 2
_COMMAND: Final = (sys.executable, "-m", "penstock.console.sql.sql_worker")
START_S: Final = 5.0  # for Python and DuckDB to load


class SqlRunner:
    """The queries of this process."""

    def __init__(self, kafka: Mapping[str, str], registry_url: str) -> None:
        self._kafka = kafka
        self._registry_url = registry_url
        self._running: dict[str, asyncio.subprocess.Process | None] = {}  # None: being started
        self._cancelled: set[str] = set()

    async def run(self, body: SqlBody) -> dict[str, Any]:
        """The result as a document; GatewayError if there is none."""
        query_id = body.id or uuid.uuid4().hex
        if query_id in self._running:
            raise GatewayError(409, "query_running", f"a query {query_id!r} is running")
        if len(self._running) >= RUNNING_MAX:
            raise too_many("too_many_queries", f"{RUNNING_MAX} queries are running; wait for one")
        self._running[query_id] = None
        try:
            answer = await self._answer(query_id, body)
        finally:
            del self._running[query_id]
            self._cancelled.discard(query_id)
        if isinstance(answer, SqlFailure):
            raise GatewayError(answer.status, answer.code, answer.message)
        return {"id": query_id, **msgspec.structs.asdict(answer)}

    def cancel(self, query_id: str) -> None:
        """End a query; 404 if there is none of that id."""
        if query_id not in self._running:
            raise not_found("unknown_query", f"no query {query_id!r} is running")
        self._cancelled.add(query_id)
        worker = self._running[query_id]
        if worker is not None and worker.returncode is None:
            worker.kill()

    async def stop(self) -> None:
        """End all queries."""
        for query_id in list(self._running):
            self.cancel(query_id)

    async def _answer(self, query_id: str, body: SqlBody) -> SqlResult | SqlFailure:
        pipe = asyncio.subprocess.PIPE
        worker = await asyncio.create_subprocess_exec(
            *_COMMAND, stdin=pipe, stdout=pipe, stderr=pipe
        )
        self._running[query_id] = worker
        if query_id in self._cancelled:
            worker.kill()
        request = msgspec.json.encode(WorkerRequest(self._kafka, self._registry_url, body))
        seconds = body.limits.seconds
        try:
            async with asyncio.timeout(seconds + START_S):
                output, errors = await worker.communicate(request)
        except TimeoutError:
            message = f"the query took longer than {seconds:g} s and was stopped"
            raise GatewayError(408, "query_timeout", message) from None
        finally:
            if worker.returncode is None:
                worker.kill()
                await worker.wait()
        if query_id in self._cancelled:
            raise GatewayError(409, "query_cancelled", "the query was cancelled")
        if not output:
            last_line = errors.decode(errors="replace").strip().rpartition("\n")[2]
            raise GatewayError(500, "query_failed", f"the query's process ended: {last_line}")
        answer: SqlResult | SqlFailure = msgspec.json.decode(output, type=SqlResult | SqlFailure)
        return answer
