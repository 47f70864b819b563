"""Idempotency keys: which requests were answered, and which are in progress. Pure.

    begin  -> NEW         not known: append, then `store` in the same transaction
           -> an answer   known with the same request: return it again
           -> refused     in progress (409), known with another request (422), table full (429)
    store     what was appended; also for what is read from the log after a restart
    end       nothing was appended: the key may be used again

A key is forgotten `kept_ms` after it was stored. Keys are scoped by topic.
"""

from typing import Final, NamedTuple

import msgspec

from penstock.errors import Malformed
from penstock.gateway.errors import GatewayError, bad_request, too_many
from penstock.model import Millis

KEY_CHARACTERS_MAX: Final = 255


class ScopedKey(NamedTuple):
    """A key of a client, for one topic."""

    topic: str
    key: str


class StoredResponse(msgspec.Struct, frozen=True):
    """What a request was answered: stored with its events."""

    digest: str  # of path, query and body
    answer: msgspec.Raw  # the body of the response
    at: int  # ms, the time of day


NEW: Final = "new"


class KeyTable:
    """The keys of one key partition."""

    def __init__(self, keys_max: int, kept_ms: int) -> None:
        self._keys_max = keys_max
        self._kept_ms = kept_ms
        self._stored: dict[ScopedKey, StoredResponse] = {}  # in the order of their times
        self._in_progress: dict[ScopedKey, str] = {}  # the digest

    def __len__(self) -> int:
        return len(self._stored)

    def begin(self, key: ScopedKey, digest: str, now: Millis) -> StoredResponse | str:
        """Whether to append (NEW), or the answer to return; raises GatewayError."""
        self.expire(now)
        stored = self._stored.get(key)
        known = self._in_progress.get(key) if stored is None else stored.digest
        if known is not None and known != digest:
            raise GatewayError(
                422,
                "idempotency_key_reused",
                "this Idempotency-Key was used for another request: use a new key",
            )
        if stored is not None:
            return stored
        if known is not None:
            raise GatewayError(
                409,
                "idempotency_key_in_progress",
                "a request with this Idempotency-Key is in progress: retry in a moment",
                headers={"Retry-After": "1"},
            )
        if len(self._stored) + len(self._in_progress) >= self._keys_max:
            raise too_many(
                "too_many_keys", f"{self._keys_max} Idempotency-Keys are remembered; try later", 60
            )
        self._in_progress[key] = digest
        return NEW

    def find(self, key: ScopedKey) -> StoredResponse | None:
        """The stored answer."""
        return self._stored.get(key)

    def store(self, key: ScopedKey, answer: StoredResponse) -> None:
        """The request was answered; a later answer takes the place of an earlier one."""
        self._in_progress.pop(key, None)
        self._stored.pop(key, None)
        self._stored[key] = answer

    def end(self, key: ScopedKey) -> None:
        """The request appended nothing."""
        self._in_progress.pop(key, None)

    def forget_stored(self) -> None:
        """Before the log is read again."""
        self._stored.clear()

    def expire(self, now: Millis) -> None:
        """Forget what is old."""
        while self._stored:
            key, oldest = next(iter(self._stored.items()))
            if oldest.at + self._kept_ms > now:
                return
            del self._stored[key]

    def validate(self) -> None:
        """Invariants, asserted in tests."""
        assert not self._stored.keys() & self._in_progress.keys(), "stored or in progress"
        assert len(self._stored) + len(self._in_progress) <= self._keys_max


def read_key(header: str) -> str:
    """The key in an `Idempotency-Key` header, quoted or bare; 400 if it is neither."""
    text = header.strip()
    if len(text) >= 2 and text[0] == text[-1] == '"':
        text = text[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    if not 0 < len(text) <= KEY_CHARACTERS_MAX or not text.isascii() or not text.isprintable():
        raise bad_request(
            f"Idempotency-Key must have 1 to {KEY_CHARACTERS_MAX} printable ASCII characters",
            "invalid_idempotency_key",
        )
    return text


def write_stored(key: ScopedKey, answer: StoredResponse) -> tuple[bytes, bytes]:
    """Key and value of the record that remembers an answer."""
    return msgspec.json.encode([key.topic, key.key]), msgspec.json.encode(answer)


def read_stored(key: bytes | None, value: bytes | None) -> tuple[ScopedKey, StoredResponse]:
    """The opposite; Malformed if it is anything else."""
    try:
        topic, text = msgspec.json.decode(key or b"", type=tuple[str, str])
        return ScopedKey(topic, text), msgspec.json.decode(value or b"", type=StoredResponse)
    except msgspec.DecodeError as error:
        raise Malformed(f"not a stored idempotency key: {error}", 0) from None
