"""Fetch of the metadata partition by a replica of the quorum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.quorum.wire import METADATA_TOPIC_ID, read_fetch, write_fetch_reply
from penstock.broker.replies import when_replied
from penstock.errors import ErrorCode
from penstock.protocol.messages.fetch import FetchResponse

if TYPE_CHECKING:
    from penstock.broker.handler import Answer, Context
    from penstock.protocol.messages.fetch import FetchRequest


def is_metadata_fetch(request: FetchRequest) -> bool:
    """Whether a replica fetches the metadata."""
    return len(request.topics) == 1 and request.topics[0].topic == METADATA_TOPIC_ID.bytes


def fetch_metadata(context: Context, request: FetchRequest) -> Answer[FetchResponse]:
    """Records of the metadata log, when the core of the quorum gives them."""
    known = context.broker.cluster.cluster_id
    if request.cluster_id and known and request.cluster_id != known:
        return FetchResponse(ErrorCode.inconsistent_cluster_id)
    reply: Any = context.broker.quorum.request(read_fetch(request))
    raft = context.broker.quorum.raft
    return when_replied(reply, lambda reply: write_fetch_reply(reply, raft.voters))
