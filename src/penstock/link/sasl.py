"""Logging in by SASL: PLAIN and SCRAM, as conversations without a connection.

A conversation yields what to send and is sent what the broker returned. With SCRAM the password
never leaves this process; with PLAIN it does, so PLAIN belongs on TLS.
"""

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Final

from penstock.errors import ErrorCode, Refused

_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_ITERATIONS_MIN: Final = 4096  # with fewer an eavesdropper could guess passwords
_ITERATIONS_MAX: Final = 1_000_000  # more would be an attack on this client
MECHANISMS: Final = ("PLAIN", *_HASHES)


@dataclass(frozen=True, slots=True)
class Login:
    """A user and how it logs in."""

    username: str
    password: str = field(repr=False)
    mechanism: str = "SCRAM-SHA-512"

    def __post_init__(self) -> None:
        if self.mechanism not in MECHANISMS:
            raise Refused(
                ErrorCode.unsupported_sasl_mechanism,
                f"{self.mechanism} is not supported here; use one of {', '.join(MECHANISMS)}",
            )


def converse(login: Login, nonce: str) -> Generator[bytes, bytes, None]:
    """The messages of a login; `nonce` must never have been used before."""
    if login.mechanism == "PLAIN":
        yield f"\0{login.username}\0{login.password}".encode()
        return
    yield from _scram(login, nonce, _HASHES[login.mechanism])


def _scram(login: Login, nonce: str, hash_name: str) -> Generator[bytes, bytes, None]:
    user = login.username.replace("=", "=3D").replace(",", "=2C")
    client_first = f"n={user},r={nonce}"
    server_first = (yield f"n,,{client_first}".encode()).decode(errors="replace")
    challenge = _fields(server_first)
    salt, iterations = _read_challenge(challenge, nonce)
    salted = hashlib.pbkdf2_hmac(hash_name, login.password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    without_proof = f"c={b64encode(b'n,,').decode()},r={challenge['r']}"
    signed = f"{client_first},{server_first},{without_proof}".encode()
    signature = hmac.digest(stored_key, signed, hash_name)
    proof = bytes(key ^ mask for key, mask in zip(client_key, signature, strict=True))
    server_final = yield f"{without_proof},p={b64encode(proof).decode()}".encode()
    server_key = hmac.digest(salted, b"Server Key", hash_name)
    expected = b64encode(hmac.digest(server_key, signed, hash_name)).decode()
    verifier = _fields(server_final.decode(errors="replace")).get("v", "")
    if not hmac.compare_digest(verifier.encode(), expected.encode()):
        raise _failed("the broker did not prove that it knows the password: it may be an impostor")


def _read_challenge(challenge: dict[str, str], nonce: str) -> tuple[bytes, int]:
    if not challenge.get("r", "").startswith(nonce) or len(challenge["r"]) == len(nonce):
        raise _failed("the broker's challenge belongs to another login")
    try:
        salt, iterations = b64decode(challenge["s"], validate=True), int(challenge["i"])
    except (KeyError, ValueError, Base64Error) as error:
        raise _failed("the broker's challenge cannot be read") from error
    if not _ITERATIONS_MIN <= iterations <= _ITERATIONS_MAX:
        raise _failed(f"the broker requires {iterations} iterations")
    return salt, iterations


def _fields(message: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in message.split(",") if "=" in pair)


def _failed(reason: str) -> Refused:
    return Refused(ErrorCode.sasl_authentication_failed, reason)
