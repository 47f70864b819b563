"""Logins and TLS: the conversations alone, then through a real listener."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import ErrorCode, Refused
from penstock.link import aio, blocking
from penstock.link.connection import LinkConnection
from penstock.link.offsets import end_offsets
from penstock.link.operation import request_of
from penstock.link.sasl import Login, converse
from penstock.link.send_batches import send_batches
from penstock.link.settings import Address, LinkSettings, Tls, UnreachableError, read_bootstrap
from penstock.model import TopicPartition
from penstock.protocol.api import Api
from penstock.protocol.messages.metadata import METADATA, MetadataRequest
from penstock.protocol.messages.topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from penstock.protocol.records import build_batch
from tests.support.apache_kafka import PeerUnavailableError
from tests.support.guarded_kafka import Guarded, guarded_kafka, make_certificate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.testing.embedded import EmbeddedBroker

PENCIL = Login("user", "pencil", "SCRAM-SHA-256")
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
SERVER_LAST = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_scram_matches_the_example_of_its_rfc() -> None:
    conversation = converse(PENCIL, NONCE)
    assert next(conversation) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert conversation.send(SERVER_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    with pytest.raises(StopIteration):
        conversation.send(SERVER_LAST)


@pytest.mark.parametrize(
    ("first", "last", "reason"),
    [
        (b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", b"", "another login"),
        (SERVER_FIRST.replace(b"i=4096", b"i=1"), b"", "requires 1 iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=9999999"), b"", "requires 9999999"),
        (SERVER_FIRST.replace(b"s=W", b"s=?"), b"", "cannot be read"),
        (SERVER_FIRST, SERVER_LAST.replace(b"6rri", b"7rri"), "impostor"),
        (SERVER_FIRST, b"e=other-error", "impostor"),
    ],
)
def test_an_invalid_challenge_or_proof_is_refused(first: bytes, last: bytes, reason: str) -> None:
    conversation = converse(PENCIL, NONCE)
    next(conversation)

    def converse_to_the_end() -> None:
        conversation.send(first)
        conversation.send(last)

    with pytest.raises(Refused, match=reason):
        converse_to_the_end()


def test_plain_is_one_message_and_repr_hides_the_password() -> None:
    login = Login("ann", "secret", "PLAIN")
    assert list(converse(login, "")) == [b"\0ann\0secret"]
    assert "secret" not in repr(LinkSettings(login=login))
    with pytest.raises(Refused, match="GSSAPI is not supported here"):
        Login("ann", "secret", "GSSAPI")


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls") / "server.pem")


@pytest.fixture
def tls_listener(broker: EmbeddedBroker, certificate: Path) -> Iterator[Address]:
    """A TLS listener in front of a broker, for one connection after the other."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    inner = read_bootstrap(broker.bootstrap)[0]
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    taken, _ = listener.accept()
                except OSError:
                    return
                try:
                    relay(context.wrap_socket(taken, server_side=True), inner)
                except OSError:
                    taken.close()  # the client did not trust the certificate

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Address("127.0.0.1", listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)
        assert not thread.is_alive()


def relay(outer: ssl.SSLSocket, inner_address: Address) -> None:
    """Whole requests in, whole responses out: the clients send one request at a time."""
    with outer, socket.create_connection(inner_address) as inner:
        while request := read_frame(outer):
            inner.sendall(request)
            outer.sendall(read_frame(inner))


def read_frame(source: socket.socket) -> bytes:
    content = b""
    while len(content) < 4 or len(content) < 4 + int.from_bytes(content[:4]):
        piece = source.recv(1 << 16)
        if not piece:
            return b""
        content += piece
    return content


def call_either(kind: str, address: Address, settings: LinkSettings) -> Any:
    if kind == "blocking":
        link = blocking.BlockingLink.connect(address, settings)
        try:
            assert not link.is_stale()
            return link.call(METADATA, MetadataRequest([]))
        finally:
            link.close()

    async def call() -> Any:
        async_link = await aio.AsyncLink.connect(address, settings)
        try:
            return await async_link.call(METADATA, MetadataRequest([]))
        finally:
            await async_link.close()

    return asyncio.run(call())


both = pytest.mark.parametrize("kind", ["blocking", "aio"])


@both
def test_a_link_uses_tls_and_checks_the_certificate(
    tls_listener: Address, certificate: Path, kind: str
) -> None:
    trusting = LinkSettings(tls=Tls(ca_file=str(certificate)))
    assert call_either(kind, tls_listener, trusting).brokers
    with pytest.raises(UnreachableError, match="certificate verify failed"):
        call_either(kind, tls_listener, LinkSettings(tls=Tls()))


def test_an_unsupported_mechanism_is_refused_with_those_the_broker_supports() -> None:
    connection = LinkConnection(Address("b", 1), LinkSettings(login=PENCIL))
    steps = connection.open("nonce")
    next(steps)
    handshake = steps.send(_Response(api_keys=[], finalized_features=[]))
    assert handshake.api is Api.SASL_HANDSHAKE
    refusal = _Response(error_code=ErrorCode.unsupported_sasl_mechanism, mechanisms=["PLAIN"])
    with pytest.raises(Refused, match="does not support SCRAM-SHA-256; it supports PLAIN"):
        steps.send(refusal)


class _Response:
    def __init__(self, error_code: ErrorCode = ErrorCode.none, **fields: object) -> None:
        self.error_code = error_code
        self.__dict__.update(fields)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    try:
        with guarded_kafka(tmp_path_factory.mktemp("guarded")) as peer:
            create_topic(peer.open_door, "guarded")
            yield peer
    except PeerUnavailableError as reason:
        pytest.skip(str(reason))


def create_topic(bootstrap: str, name: str) -> None:
    request = request_of(CREATE_TOPICS, CreateTopicsRequest([CreatableTopic(name, 1, 1)]))
    with blocking.BlockingCluster(bootstrap) as cluster:
        cluster.run(lambda routes: routes.send_to_any(request))


@pytest.mark.slow
@pytest.mark.interop
@both
def test_apache_kafka_accepts_the_right_password_only(guarded: Guarded, kind: str) -> None:
    place = TopicPartition("guarded", 0)
    batch = build_batch([(None, b"v")])
    tls = Tls(ca_file=str(guarded.certificate))
    ways = [
        (guarded.scram_over_tls, LinkSettings(tls=tls, login=Login("ann", "secret"))),
        (guarded.plain_in_the_clear, LinkSettings(login=Login("ann", "secret", "PLAIN"))),
    ]
    for bootstrap, settings in ways:
        assert call_either(kind, read_bootstrap(bootstrap)[0], settings).brokers
        with blocking.BlockingCluster(bootstrap, settings) as cluster:
            before = cluster.run(end_offsets([place]))[place]
            assert cluster.run(send_batches({place: [batch]})) == {place: [before]}
        bad_login = Login("ann", "guess", settings.login.mechanism if settings.login else "")
        with pytest.raises(Refused, match="refuses the login of ann"):
            call_either(
                kind, read_bootstrap(bootstrap)[0], LinkSettings(tls=settings.tls, login=bad_login)
            )
