"""`POST /topics/{topic}/produce`: write events."""

from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Request, Response

from penstock.gateway.errors import bad_request
from penstock.gateway.gateway_node import GatewayNode
from penstock.gateway.json_responses import MEDIA, json_response
from penstock.gateway.produce.bodies import ProduceBody
from penstock.gateway.produce.gateway_producer import (
    ACKS,
    GatewayProducer,
    answer_document,
    digest_of,
    read_acks,
)
from penstock.gateway.produce.key_table import ScopedKey, read_key
from penstock.gateway.request_bodies import (
    TopicName,
    described_body,
    described_response,
    read_body,
    read_json,
)

_EXAMPLES: Final = {
    "one_record": {"key": "berlin", "value": {"cents": 1250}},
    "several_records": {
        "records": [
            {"key": "berlin", "value": {"cents": 1250}, "headers": [["source", "shop"]]},
            {"key": "paris", "value": None},
            {"value_base64": "AAEC", "partition": 0, "timestamp": 1700000000000},
        ]
    },
    "under_a_schema": {
        "value_schema": {
            "type": "record",
            "name": "Order",
            "fields": [{"name": "cents", "type": "long"}],
        },
        "records": [{"key": "berlin", "value": {"cents": 1250}}],
    },
}
_ANSWER: Final = {
    "records": [
        {"partition": 0, "offset": 7},
        {"error": {"code": "invalid_value", "message": "the value does not fit the schema"}},
    ]
}


def producing(node: GatewayNode, producer: GatewayProducer) -> APIRouter:
    """Writing events."""
    router = APIRouter(tags=["events"])

    @router.post(
        "/topics/{topic}/produce",
        openapi_extra=described_body(ProduceBody, **_EXAMPLES),
        responses=described_response(_ANSWER, "A result for each record, in their order."),
    )
    async def produce(
        topic: TopicName,
        request: Request,
        acks: Annotated[str, Query(description="all, 1 or 0.")] = "all",
        idempotency_key: Annotated[str | None, Header(max_length=600)] = None,
        dry_run: Annotated[bool, Query(description="Encode, and write nothing.")] = False,
    ) -> Response:
        """Write one record or several. The answer is 200 also if some records have errors.

        A dry run encodes and checks the records, registers no schema and writes nothing: the answer
        has the partition (null: any) and the bytes of each record, or its error.

        With an `Idempotency-Key` header a request that is sent again gets the same answer and
        appends nothing, for 24 hours and across restarts.
        """
        body = await read_body(request, node.settings.body_bytes_max)
        level = read_acks(acks)
        if dry_run:
            return json_response(await producer.check(topic, read_json(body, ProduceBody)))
        if idempotency_key is None:
            records = await producer.encode(topic, read_json(body, ProduceBody))
            return json_response(answer_document(await producer.write(topic, records, level)))
        if level != ACKS["all"]:
            raise bad_request("an Idempotency-Key needs acks=all")
        key = ScopedKey(topic, read_key(idempotency_key))
        records = await producer.encode(topic, read_json(body, ProduceBody))
        scope = request.scope
        digest = digest_of(scope["raw_path"], scope["query_string"], body)
        answer = await producer.write_once(key, digest, records)
        headers = {"Idempotency-Replayed": "true"} if answer.is_replayed else None
        return Response(answer.body, 200, headers, MEDIA)

    return router
