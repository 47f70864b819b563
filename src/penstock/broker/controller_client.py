"""The active controller as every broker reaches it: here, or on another broker.

Brokers send their own requests (registration, heartbeats, in-sync sets) directly. Requests of
clients that only the controller can decide are forwarded in an Envelope; this broker responds once
it has applied the change itself, so that the client finds it here.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.broker.broker_links import Purpose
from penstock.broker.handler import Answer, Client, Context, deferred_from, result_of
from penstock.errors import ErrorCode, Refused
from penstock.link.operation import FAILURES
from penstock.link.settings import Address
from penstock.model import Offset
from penstock.protocol.api import known_versions
from penstock.protocol.framing import (
    RESPONSE_BYTES_MIN,
    response_has_tags,
    skip_tagged_fields,
    write_request_header,
)
from penstock.protocol.messages.broker_lifecycle import (
    ALLOCATE_PRODUCER_IDS,
    ENVELOPE,
    AllocateProducerIdsRequest,
    EnvelopeRequest,
)
from penstock.protocol.principals import write_principal

if TYPE_CHECKING:
    from penstock.broker.active_controller import ActiveController
    from penstock.broker.broker import Broker
    from penstock.broker.broker_links import BrokerLinks
    from penstock.broker.metadata_follower import MetadataFollower
    from penstock.broker.quorum.quorum_node import QuorumNode
    from penstock.machine import Deferred
    from penstock.model import NodeId
    from penstock.protocol.message import Message

FORWARD_S: Final = 5.0  # how long a request waits for a controller
RETRY_S: Final = 0.05
OWN_HOST: Final = "127.0.0.1"

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class ControllerClient:
    """Sends requests to the active controller."""

    def __init__(
        self,
        broker: Broker,
        active: ActiveController,
        follower: MetadataFollower,
        links: BrokerLinks,
    ) -> None:
        self._broker = broker
        self._active = active
        self._follower = follower
        self._links = links
        self._quorum: QuorumNode | None = None

    def attach(self, quorum: QuorumNode) -> None:
        """The quorum that knows who is active."""
        self._quorum = quorum

    @property
    def controller_id(self) -> NodeId | None:
        """The broker that leads the metadata quorum, as far as this one knows."""
        return None if self._quorum is None else self._quorum.raft.leader_id

    async def call(
        self,
        message: Message[RequestT, ResponseT],
        request: RequestT,
        *,
        purpose: Purpose = Purpose.CONTROLLER,
        timeout_ms: int | None = None,
    ) -> ResponseT:
        """The controller's response. NOT_CONTROLLER: there is none now; OSError: it is lost."""
        if self._active.is_active:
            context = self._own_context(message)
            response: ResponseT = await result_of(_handle_here(context, request))
            return response
        link = await self._links.connect(self._address(), purpose)
        return await link.call(message, request, timeout_ms=timeout_ms)

    def forward(self, context: Context, request: object) -> Deferred[Any]:
        """A client's request that only the controller can decide."""
        return deferred_from(self._forward(context, request))

    def request(self, message: Message[RequestT, Any], request: RequestT) -> Answer[Any]:
        """A request of this broker itself, decided as a client's would be; also a Deferred."""
        context = self._own_context(message)
        if self._active.is_active:
            return _handle_here(context, request)
        return self.forward(context, request)

    def allocate_producer_ids(self) -> Deferred[object]:
        """Implements `producer_ids.ProducerIdSource`."""
        return deferred_from(self._allocate())

    async def _allocate(self) -> object:
        request = AllocateProducerIdsRequest(self._broker.settings.node_id)
        try:
            response = await self.call(ALLOCATE_PRODUCER_IDS, request)
        except FAILURES:
            return None
        if response.error_code != ErrorCode.none:
            return None
        first = response.producer_id_start
        return range(first, first + response.producer_id_len)

    def _own_context(self, message: Message[Any, Any]) -> Context:
        version = known_versions(message.api)[-1]
        row = self._broker.api_table.by_key.get(message.api)
        if row is not None:
            version = row.versions[1]
        client, counts = Client(OWN_HOST, 0), self._broker.counts.by_api[message.api]
        return Context(self._broker, client, "broker", message, version, 0, True, counts)

    def _address(self) -> Address:
        quorum = self._quorum
        leader = None if quorum is None else quorum.raft.leader_id
        voter = None if leader is None or quorum is None else quorum.raft.voters.find(leader)
        if voter is None or not voter.endpoints or leader == self._broker.settings.node_id:
            raise Refused(ErrorCode.not_controller, "no controller is active; try again")
        return Address(voter.endpoints[0].host, voter.endpoints[0].port)

    async def _forward(self, context: Context, request: object) -> Any:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + FORWARD_S
        while True:
            try:
                return await self._attempt(context, request)
            except Refused as refusal:
                if refusal.code != ErrorCode.not_controller or loop.time() + RETRY_S > until_s:
                    return context.message.refuse(request, refusal)
            await asyncio.sleep(RETRY_S)

    async def _attempt(self, context: Context, request: object) -> Any:
        message = context.message
        if self._active.is_active:
            return await result_of(_handle_here(context, request))
        try:
            link = await self._links.connect(self._address(), Purpose.CONTROLLER)
        except FAILURES as failure:
            if isinstance(failure, Refused):
                raise
            raise Refused(
                ErrorCode.not_controller, f"the controller cannot be reached: {failure}"
            ) from failure
        envelope = EnvelopeRequest(
            self._frame(context, request),
            write_principal(context.principal),
            _packed_host(context.host),
        )
        try:
            response = await link.call(ENVELOPE, envelope)
        except FAILURES as failure:
            raise Refused(
                ErrorCode.request_timed_out,
                f"the connection to the controller was lost: the outcome is unknown ({failure})",
            ) from failure
        if response.error_code != ErrorCode.none or response.response_data is None:
            raise Refused(response.error_code, "the controller refused the request")
        await self._applied(Offset(response.metadata_offset))
        frame = memoryview(response.response_data)
        position = RESPONSE_BYTES_MIN
        if response_has_tags(message.api, context.api_version):
            position = skip_tagged_fields(frame, position, len(frame))
        return message.read_response(frame, position, context.api_version)

    def _frame(self, context: Context, request: object) -> bytes:
        message, version = context.message, context.api_version
        header = write_request_header(
            api_key=message.api, api_version=version, correlation_id=0, client_id=context.client_id
        )
        return b"".join((header, *message.write_request(request, version)))

    async def _applied(self, end_offset: Offset) -> None:
        """Wait until this broker has applied the change, for as long as a client would."""
        applied: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._follower.call_when_applied(
            end_offset, lambda _refusal: None if applied.done() else applied.set_result(None)
        )
        await asyncio.wait((applied,), timeout=FORWARD_S)


def controller_id(broker: Broker) -> int:
    """The broker that clients are shown as the controller: every broker takes its requests."""
    leader = broker.controller_client.controller_id
    if leader is not None and broker.cluster.endpoint(leader) is not None:
        return leader
    return broker.settings.node_id


def _handle_here(context: Context, request: object) -> Any:
    """This broker is the active controller: decide the request, with its client's name."""
    try:
        return context.broker.api_table.by_key[context.message.api].handle(context, request)
    except Refused as refusal:
        return context.message.refuse(request, refusal)


def _packed_host(host: str) -> bytes:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.inet_pton(family, host)
    except OSError:
        return socket.inet_pton(socket.AF_INET, OWN_HOST)
