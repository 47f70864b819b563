"""Client quotas: byte and time rates by user and client id, resolved as Kafka does.

A quota is a token bucket with tokens for one second. A request is never refused: it takes its
tokens, the bucket may go below zero, and the time until it is back at zero is the throttle time,
during which the connection reads nothing. Entities, most specific first:

    user + client id, user + default client, user, default user + client id, default user + default
    client, default user, client id, default client
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

BURST_S: Final = 1.0  # unused time that a client may use later
THROTTLE_MS_MAX: Final = 60_000
REQUEST_THROTTLE_MS_MAX: Final = 1000  # one slow request must not block a client for minutes
BUCKETS_MAX: Final = 20_000  # beyond, the oldest is evicted: its client starts with a full bucket


class QuotaKind(IntEnum):
    """What a quota limits."""

    PRODUCE_BYTES = 0
    FETCH_BYTES = 1
    REQUEST_MS = 2  # of the event loop's time, per second


class QuotaEntity(NamedTuple):
    """The subject of a quota. None: any; DEFAULT: any without a quota of its own."""

    user: str | None = None
    client_id: str | None = None


DEFAULT: Final = "<default>"


class Rates(NamedTuple):
    """Limits per second; None: no limit."""

    produce_bytes: float | None = None
    fetch_bytes: float | None = None
    request_ms: float | None = None


class _Bucket:
    __slots__ = ("rate", "throttle_ms_max", "tokens", "updated_s")

    def __init__(self, kind: QuotaKind, rate: float, now_s: float) -> None:
        self.rate = rate
        self.throttle_ms_max = (
            REQUEST_THROTTLE_MS_MAX if kind is QuotaKind.REQUEST_MS else THROTTLE_MS_MAX
        )
        self.tokens = rate * BURST_S
        self.updated_s = now_s

    def take(self, amount: float, now_s: float) -> int:
        gained = (now_s - self.updated_s) * self.rate
        self.tokens = min(self.tokens + gained, self.rate * BURST_S) - amount
        self.updated_s = now_s
        if self.tokens >= 0:
            return 0
        throttle_ms = int(-self.tokens / self.rate * 1000) + 1
        if throttle_ms <= self.throttle_ms_max:
            return throttle_ms
        self.tokens = -self.rate * self.throttle_ms_max / 1000  # the wait pays for it
        return self.throttle_ms_max


_BucketKey = tuple[QuotaKind, str | None, str | None]


class Quotas:
    """All quotas of the cluster, and the buckets of the clients that they apply to."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._rates: dict[QuotaEntity, Rates] = {}
        self._buckets: dict[_BucketKey, _Bucket] = {}
        self.throttled_ms: list[int] = [0] * len(QuotaKind)  # of all clients
        self.limits_requests: bool = False  # whether the time of handlers is measured
        self.limits_bytes: bool = False  # whether any quota is in bytes

    def replace(self, rates: Mapping[QuotaEntity, Rates]) -> None:
        """The cluster's quotas changed: buckets with the same rate keep their level."""
        self._rates = dict(rates)
        self.limits_requests = any(rate.request_ms is not None for rate in rates.values())
        self.limits_bytes = any(rate[:2] != (None, None) for rate in rates.values())
        for key, bucket in tuple(self._buckets.items()):
            kind, user, client_id = key
            resolved = self._resolve(kind, user or "", client_id or "")
            if resolved is None or resolved[0] != bucket.rate:
                del self._buckets[key]

    def charge(self, kind: QuotaKind, principal: str, client_id: str | None, amount: float) -> int:
        """Take tokens; returns the throttle time in milliseconds."""
        if not self._rates:
            return 0
        bucket = self._bucket(kind, principal, client_id)
        if bucket is None:
            return 0
        throttle_ms = bucket.take(amount, self._monotonic_s())
        self.throttled_ms[kind] += throttle_ms
        return throttle_ms

    def burst(self, kind: QuotaKind, principal: str, client_id: str | None) -> int | None:
        """The most that one request should take, if there is a quota."""
        if not self._rates:
            return None
        bucket = self._bucket(kind, principal, client_id)
        return None if bucket is None else max(int(bucket.rate * BURST_S), 1)

    def _bucket(self, kind: QuotaKind, principal: str, client_id: str | None) -> _Bucket | None:
        resolved = self._resolve(kind, principal.removeprefix("User:"), client_id or "")
        if resolved is None:
            return None
        rate, key = resolved
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= BUCKETS_MAX:
                del self._buckets[next(iter(self._buckets))]
            bucket = self._buckets[key] = _Bucket(kind, rate, self._monotonic_s())
        return bucket

    def _resolve(
        self, kind: QuotaKind, user: str, client_id: str
    ) -> tuple[float, _BucketKey] | None:
        """The rate that applies, and the bucket that it is shared in."""
        for entity in (
            QuotaEntity(user, client_id),
            QuotaEntity(user, DEFAULT),
            QuotaEntity(user, None),
            QuotaEntity(DEFAULT, client_id),
            QuotaEntity(DEFAULT, DEFAULT),
            QuotaEntity(DEFAULT, None),
            QuotaEntity(None, client_id),
            QuotaEntity(None, DEFAULT),
        ):
            rates = self._rates.get(entity)
            rate = None if rates is None else rates[kind]
            if rate is not None:
                shared_user = None if entity.user is None else user
                shared_client = None if entity.client_id is None else client_id
                return rate, (kind, shared_user, shared_client)
        return None
