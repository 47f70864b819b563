"""Produce in a hurry: one plain batch for one partition that takes it as it is.

Nearly all requests of a busy broker are of this kind. Anything else is left to `produce`, before a
thing was done: what this way would not take is looked at closely there, and refused with reasons.
"""

from __future__ import annotations

from penstock.broker.handler import Context
from penstock.errors import Refused
from penstock.protocol.answers.produce import pack_produced
from penstock.protocol.batch import read_plain
from penstock.protocol.produce_request import OneBatch


def produce_one(context: Context, request: OneBatch) -> bytes | None:
    """Append and answer; None: it has to go the long way. OSError: the disk did not take it."""
    broker = context.broker
    acks, _, topic, index, records = request
    table = broker.partitions
    hosted = table.topics.get(topic) if isinstance(topic, str) else table.topics_by_id.get(topic)
    partition = None if hosted is None else hosted.partitions.get(index)
    if (
        partition is None
        or not partition.takes_at_once
        or not (acks == 1 or acks == -1)
        or broker.quotas.limits_bytes
    ):
        return None
    now = broker.clock()
    accept = partition.settings.accept
    header = read_plain(records)
    if (
        header is None
        or len(records) > accept.max_message_bytes
        or header.max_timestamp > now + accept.timestamp_after_max_ms
    ):
        return None
    try:
        appended = partition.append_one(records, header, now=now)
    except Refused:
        return None  # before a byte was touched: what is wrong will be found again
    return pack_produced(
        topic, index, base_offset=appended.base_offset, log_start_offset=appended.start_offset
    )
