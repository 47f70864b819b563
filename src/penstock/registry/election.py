"""Who may write: one among the registry's nodes, told by membership in a Kafka group.

As Confluent's nodes do it: protocol type `sr`, each member says its address, the group's leader
names the eligible one with the smallest URL, everybody learns who it is. The one who is primary
stays so while it is there, because a change costs a moment without writes.

The group only says who should try. Who may write is decided by the log, which fences all others.
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
from penstock.registry.kafka_journal import OutcomeUnknown
from penstock.registry.node import Registry
from penstock.registry.topic_reader import CannotWrite

logger = logging.getLogger(__name__)

PROTOCOL_TYPE: Final = "sr"
PROTOCOL: Final = "v0"
NO_ERROR: Final = 0
DUPLICATE_URLS: Final = 1
RETRY_S: Final = 0.5
FIRST_S: Final = 1.0  # longer only after a kill: the group waits for who is gone


class Candidate(NamedTuple):
    """A node as the others know it."""

    host: str
    port: int
    is_eligible: bool = True
    scheme: str = "http"
    is_primary: bool = False

    @property
    def url(self) -> str:
        """Where it serves."""
        return f"{self.scheme}://{self.host}:{self.port}"

    def to_json(self) -> bytes:
        """As it is said in the group."""
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


def read_candidate(raw: bytes) -> Candidate | None:
    """What a member said of itself; None if it is not to be understood."""
    with suppress(ValueError, KeyError, TypeError):
        said = json.loads(raw)
        return Candidate(
            str(said["host"]),
            int(said["port"]),
            bool(said.get("master_eligibility", True)),
            str(said.get("scheme") or "http"),
            bool(said.get("leader", False)),
        )
    return None


def assign(members: Mapping[str, bytes]) -> dict[str, bytes]:
    """What the group's leader tells everybody: who is primary."""
    candidates = {
        member: found for member, raw in members.items() if (found := read_candidate(raw))
    }
    urls = [one.url for one in candidates.values()]
    error = DUPLICATE_URLS if len(set(urls)) < len(urls) else NO_ERROR
    eligible = {member: one for member, one in candidates.items() if one.is_eligible}
    chosen = min(
        eligible, key=lambda member: (not eligible[member].is_primary, eligible[member].url),
        default=None,
    )  # fmt: skip
    verdict: dict[str, Any] = {
        "version": 1,
        "error": error,
        "master": None,
        "master_identity": None,
    }
    if chosen is not None and error == NO_ERROR:
        verdict["master"] = chosen
        verdict["master_identity"] = json.loads(eligible[chosen].to_json())
    raw = json.dumps(verdict).encode()
    return dict.fromkeys(members, raw)


class Election:
    """Keeps a registry node told of who is primary."""

    def __init__(
        self,
        registry: Registry,
        kafka: Mapping[str, str],
        group: str,
        candidate: Candidate,
        *,
        session_ms: int,
    ) -> None:
        self._registry = registry
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
        """Begin to take part."""
        self._membership.start()

    async def first_known(self) -> None:
        """Wait for the first result; not for ever, because reads need none."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_S):
                await self._known.wait()

    async def stop(self) -> None:
        """Make room for another."""
        await self._membership.leave()

    def _metadata(self) -> bytes:
        is_primary = self._registry.was_primary
        return self._candidate._replace(is_primary=is_primary).to_json()

    async def _on_joined(self, joined: GroupGeneration) -> None:
        verdict = json.loads(joined.assignment)
        if verdict.get("error") == DUPLICATE_URLS:
            logger.error("two nodes say they are %s: set an address for each", self._candidate.url)
        identity = verdict.get("master_identity")
        if verdict.get("master") == joined.member_id:
            await self._lead()
        elif identity is None:
            await self._registry.follow(None)
        else:
            primary = read_candidate(json.dumps(identity).encode())
            await self._registry.follow(None if primary is None else primary.url)
        self._known.set()

    async def _lead(self) -> None:
        """Until it works: only the end of the generation relieves a primary of its duty."""
        while True:
            try:
                await self._registry.lead()
            except (CannotWrite, OutcomeUnknown, TimeoutError) as trouble:
                logger.warning("the log cannot be claimed yet: %s", trouble)
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def _on_lost(self, reason: str) -> None:
        logger.info("the registry's nodes choose anew: %s", reason)
        await self._registry.pause()
