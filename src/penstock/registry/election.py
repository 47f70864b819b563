"""Which node of the registry may write: chosen by membership in a Kafka group.

As Confluent's nodes do it: protocol type `sr`, each member sends its address, the group's leader
names the eligible one with the smallest URL, and all members learn which it is. A primary stays
primary while it is a member, because a change costs a moment without writes.

The group only says which node should try. The log decides which one may write, and fences all
others.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from penstock.link.aio import AsyncCluster
from penstock.link.group_member import GroupGeneration, GroupMember, MemberSettings
from penstock.link.settings import link_settings
from penstock.registry.registry_node import CLAIM_ERRORS, RegistryNode

logger: Final = logging.getLogger(__name__)

PROTOCOL_TYPE: Final = "sr"
PROTOCOL: Final = "v0"
NO_ERROR: Final = 0
DUPLICATE_URLS: Final = 1
RETRY_S: Final = 0.5
FIRST_S: Final = 1.0  # longer only after a crash: the group waits for the lost member


class PrimaryCandidate(NamedTuple):
    """A node as the other nodes know it."""

    host: str
    port: int
    is_eligible: bool = True
    scheme: str = "http"
    is_primary: bool = False

    @property
    def url(self) -> str:
        """Its address for clients."""
        return f"{self.scheme}://{self.host}:{self.port}"

    def to_json(self) -> bytes:
        """As it is sent to the group."""
        return json.dumps(
            {
                "version": 1,
                "host": self.host,
                "port": self.port,
                "master_eligibility": self.is_eligible,
                "scheme": self.scheme,
                "leader": self.is_primary,
            }
        ).encode()


def read_candidate(raw: bytes) -> PrimaryCandidate | None:
    """What a member sent; None if it cannot be read."""
    with suppress(ValueError, KeyError, TypeError):
        sent = json.loads(raw)
        return PrimaryCandidate(
            str(sent["host"]),
            int(sent["port"]),
            bool(sent.get("master_eligibility", True)),
            str(sent.get("scheme") or "http"),
            bool(sent.get("leader", False)),
        )
    return None


def assign(members: Mapping[str, bytes]) -> dict[str, bytes]:
    """What the group's leader sends to all members: which node is primary."""
    candidates = {
        member: candidate for member, raw in members.items() if (candidate := read_candidate(raw))
    }
    urls = [candidate.url for candidate in candidates.values()]
    error = DUPLICATE_URLS if len(set(urls)) < len(urls) else NO_ERROR
    eligible = {member: each for member, each in candidates.items() if each.is_eligible}
    chosen = min(
        eligible, key=lambda member: (not eligible[member].is_primary, eligible[member].url),
        default=None,
    )  # fmt: skip
    decision: dict[str, Any] = {
        "version": 1,
        "error": error,
        "master": None,
        "master_identity": None,
    }
    if chosen is not None and error == NO_ERROR:
        decision["master"] = chosen
        decision["master_identity"] = json.loads(eligible[chosen].to_json())
    raw = json.dumps(decision).encode()
    return dict.fromkeys(members, raw)


class Election:
    """Tells a registry node its role, for as long as it is a member of the group."""

    def __init__(
        self,
        node: RegistryNode,
        kafka: Mapping[str, str],
        group: str,
        candidate: PrimaryCandidate,
        *,
        session_ms: int,
    ) -> None:
        self._node = node
        self._candidate = candidate
        self._known = asyncio.Event()
        self._membership = GroupMember(
            AsyncCluster(kafka["bootstrap.servers"], link_settings(kafka)),
            MemberSettings(
                group,
                PROTOCOL_TYPE,
                PROTOCOL,
                session_ms=session_ms,
                rebalance_ms=session_ms,
                heartbeat_ms=max(session_ms // 6, 500),
            ),
            metadata=self._metadata,
            assign=assign,
            on_joined=self._on_joined,
            on_lost=self._on_lost,
        )

    def start(self) -> None:
        """Join the group."""
        self._membership.start()

    async def first_known(self) -> None:
        """Wait for the first result, but not long: reads do not need it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_S):
                await self._known.wait()

    async def stop(self) -> None:
        """Leave the group: another node becomes primary."""
        await self._membership.leave()

    def _metadata(self) -> bytes:
        is_primary = self._node.has_claim
        return self._candidate._replace(is_primary=is_primary).to_json()

    async def _on_joined(self, joined: GroupGeneration) -> None:
        decision = json.loads(joined.assignment)
        if decision.get("error") == DUPLICATE_URLS:
            logger.error("two nodes have the address %s: set one for each", self._candidate.url)
        identity = decision.get("master_identity")
        if decision.get("master") == joined.member_id:
            await self._lead()
        elif identity is None:
            await self._node.follow(None)
        else:
            primary = read_candidate(json.dumps(identity).encode())
            await self._node.follow(None if primary is None else primary.url)
        self._known.set()

    async def _lead(self) -> None:
        """Until it works, or until the next generation of the group."""
        while True:
            try:
                await self._node.lead()
            except CLAIM_ERRORS as error:
                logger.warning("the log cannot be claimed yet: %s", error)
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def _on_lost(self, reason: str) -> None:
        logger.info("the registry's nodes choose a primary again: %s", reason)
        await self._node.pause()
