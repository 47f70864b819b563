"""A broker's life in its cluster: it registers, sends heartbeats, is unfenced, and stops in order.

    registering -> fenced -> running -> stopping -> stopped
Everything goes through the active controller, wherever it is, and is tried again until it succeeds.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from penstock.broker.background import start_background
from penstock.broker.broker_links import Purpose
from penstock.errors import ErrorCode, Refused
from penstock.link.operation import FAILURES
from penstock.protocol.messages.broker_lifecycle import (
    BROKER_HEARTBEAT,
    BROKER_REGISTRATION,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerListener,
    BrokerRegistrationRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from penstock.broker.broker import Endpoint
    from penstock.broker.controller_client import ControllerClient
    from penstock.model import Millis, Offset

logger: Final = logging.getLogger(__name__)

RETRY_S: Final = 0.05
ALONE_INTERVAL_S: Final = 1.0  # no broker depends on the heartbeats, nor does the controller here
PLAINTEXT: Final = 0  # security protocol
HEARTBEAT_TIMEOUT_MS: Final = 1_000


class BrokerLifecycle:
    """One process as a broker."""

    def __init__(
        self,
        controller: ControllerClient,
        *,
        endpoint: Endpoint,
        incarnation: UUID,
        log_dir: UUID,
        cluster_id: Callable[[], str],
        applied_offset: Callable[[], Offset],
        is_alone: Callable[[], bool],
        interval_ms: Millis,
        session_ms: Millis,
    ) -> None:
        self._controller = controller
        self._endpoint = endpoint
        self._incarnation = incarnation
        self._log_dir = log_dir
        self._cluster_id = cluster_id
        self._applied_offset = applied_offset
        self._is_alone = is_alone
        self._interval_s = interval_ms / 1000
        self._session_s = session_ms / 1000
        self._answered_at = 0.0  # the last heartbeat, by the loop's clock
        self._heartbeats: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._may_stop = asyncio.Event()
        self._was_unfenced = asyncio.Event()
        self.epoch: int = -1
        self.is_fenced: bool = True
        self.wants_fence: bool = False  # it cannot follow the metadata for now
        self.on_fenced: Callable[[], None] = lambda: None  # after `wants_fence`

    async def register(self, previous_epoch: int) -> int:
        """Become a broker of the cluster; the epoch. Tries until there is a controller."""
        request = BrokerRegistrationRequest(
            self._endpoint.node_id,
            self._cluster_id(),
            self._incarnation,
            [BrokerListener("PLAINTEXT", self._endpoint.host, self._endpoint.port, PLAINTEXT)],
            (),
            self._endpoint.rack,
            log_dirs=[self._log_dir],
            previous_broker_epoch=previous_epoch,
        )
        last_reason = ""
        while True:
            try:
                response = await self._controller.call(
                    BROKER_REGISTRATION, request, purpose=Purpose.HEARTBEAT
                )
                if response.error_code == ErrorCode.none:
                    self.epoch = response.broker_epoch
                    return self.epoch
                reason = response.error_code.name
                if response.error_code == ErrorCode.inconsistent_cluster_id:
                    raise WrongClusterError(
                        f"this folder belongs to cluster {self._cluster_id()}, and the quorum to"
                        " another: check --voters and --dir"
                    )
            except FAILURES as failure:
                reason = str(failure)
            if reason != last_reason:
                logger.info("waiting to register with the controller: %s", reason)
                last_reason = reason
            await asyncio.sleep(RETRY_S)

    def start(self) -> None:
        """Send heartbeats from now on; the controller unfences this broker."""
        self._heartbeats = start_background("sending heartbeats", self._send_heartbeats())

    @property
    def is_in_session(self) -> bool:
        """Whether the controller answered lately: if not, others may lead these partitions now."""
        if self._is_alone():
            return True
        return asyncio.get_running_loop().time() - self._answered_at <= self._session_s

    async def unfenced(self) -> None:
        """Wait until this broker serves."""
        await self._was_unfenced.wait()

    async def renewed(self) -> None:
        """Wait for a heartbeat that the controller answers from now on, unfenced.

        It unfences a broker only once that has applied all metadata of the time before.
        """
        while True:
            if await self._send_heartbeat() and not self.is_fenced:
                return
            await asyncio.sleep(RETRY_S)

    async def stop(self, within_s: float) -> None:
        """Let other brokers take over, for this long at most; then send nothing more."""
        self._is_stopping = True
        if self._heartbeats is None:
            return
        try:
            async with asyncio.timeout(within_s):
                while not self._may_stop.is_set() and not self._heartbeats.done():
                    await self._send_heartbeat()
                    await asyncio.sleep(RETRY_S)
        except TimeoutError:
            logger.warning("stopping without the controller's consent: it did not respond in time")
        self.close()

    def close(self) -> None:
        """Send nothing more."""
        if self._heartbeats is not None:
            self._heartbeats.cancel()

    async def _send_heartbeats(self) -> None:
        while not self._may_stop.is_set():
            was_received = await self._send_heartbeat()
            if not was_received or (self.is_fenced and not self.wants_fence):
                delay_s = RETRY_S
            elif self._is_alone():
                delay_s = max(self._interval_s, ALONE_INTERVAL_S)
            else:
                delay_s = self._interval_s
            await asyncio.sleep(delay_s)

    async def _send_heartbeat(self) -> bool:
        """Whether the controller received it."""
        request = BrokerHeartbeatRequest(
            self._endpoint.node_id,
            self.epoch,
            self._applied_offset(),
            want_fence=self.wants_fence,
            want_shut_down=self._is_stopping,
        )
        try:
            response = await self._controller.call(
                BROKER_HEARTBEAT,
                request,
                purpose=Purpose.HEARTBEAT,
                timeout_ms=HEARTBEAT_TIMEOUT_MS,
            )
        except FAILURES as failure:
            if isinstance(failure, Refused) or not self._is_stopping:
                logger.debug("a heartbeat could not be sent: %s", failure)
            return False
        return self._on_response(response)

    def _on_response(self, response: BrokerHeartbeatResponse) -> bool:
        if response.error_code != ErrorCode.none:
            logger.debug("a heartbeat was refused: %s", response.error_code.name)
            return False
        self._answered_at = asyncio.get_running_loop().time()
        if response.is_fenced != self.is_fenced:
            self.is_fenced = response.is_fenced
            logger.info("this broker is %s", "fenced" if self.is_fenced else "unfenced")
        if not self.is_fenced:
            self._was_unfenced.set()
        elif self.wants_fence:
            self.on_fenced()
        if response.should_shut_down:
            self._may_stop.set()
        return True


class WrongClusterError(Exception):
    """The folder is of another cluster than the quorum."""
