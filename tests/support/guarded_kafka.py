"""An Apache Kafka that asks who comes: TLS with SCRAM on one listener, PLAIN on another.

For tests of logins; its one user is `ann`, her password `secret`. Needs the `cryptography` package
to make the server's certificate.
"""

import datetime
import hashlib
import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from penstock.link import blocking
from penstock.link.operation import request_of
from penstock.protocol.messages.security import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    ScramUpsertion,
)
from tests.support.apache_kafka import ApacheKafka, free_port

USER: Final = "ann"
PASSWORD: Final = "secret"
_SCRAM_SHA_512: Final = 2
_ROUNDS: Final = 4096
_MODULES: Final = "org.apache.kafka.common.security"


class Guarded(NamedTuple):
    """Its address, and the certificate that its clients must trust."""

    open_door: str
    scram_over_tls: str
    plain_in_the_clear: str
    certificate: Path

    @property
    def properties(self) -> dict[str, str]:
        """What a client needs to come in by SCRAM over TLS."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(self.certificate),
        }


@contextmanager
def guarded_kafka(folder: Path) -> Iterator[Guarded]:
    """One node for the length of a `with` block; PeerUnavailableError where there is none."""
    certificate = make_certificate(folder / "server.pem")
    settings: list[str] = []
    node = ApacheKafka(heap="512m", settings=settings, folder=folder / "node")
    scram, clear = free_port(), free_port()
    settings += _listeners(node, scram, clear)
    settings += ["ssl.keystore.type=PEM", f"ssl.keystore.location={certificate}"]
    with node:
        _add_user(node.bootstrap)
        yield Guarded(node.bootstrap, f"127.0.0.1:{scram}", f"127.0.0.1:{clear}", certificate)


def _listeners(node: ApacheKafka, scram: int, clear: int) -> list[str]:
    ports = {"PLAINTEXT": node.port, "SASL_SSL": scram, "SASL_PLAINTEXT": clear}
    doors = [f"{name}://127.0.0.1:{port}" for name, port in ports.items()]
    inner = f"CONTROLLER://127.0.0.1:{node.controller_port}"
    scram_module = f"{_MODULES}.scram.ScramLoginModule required"
    plain_module = f"{_MODULES}.plain.PlainLoginModule required"
    over_tls, in_the_clear = "listener.name.sasl_ssl", "listener.name.sasl_plaintext"
    return [
        f"listeners={','.join([*doors, inner])}",
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,"
        + ",".join(f"{name}:{name}" for name in ports),
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512",
        f"{over_tls}.scram-sha-512.sasl.jaas.config={scram_module};",
        f"{over_tls}.plain.sasl.jaas.config={plain_module};",
        f'{in_the_clear}.plain.sasl.jaas.config={plain_module} user_{USER}="{PASSWORD}";',
        f"{in_the_clear}.scram-sha-512.sasl.jaas.config={scram_module};",
    ]


def _add_user(bootstrap: str) -> None:
    salt = b"salt"
    salted = hashlib.pbkdf2_hmac("sha512", PASSWORD.encode(), salt, _ROUNDS)
    user = ScramUpsertion(USER, _SCRAM_SHA_512, _ROUNDS, salt, salted)
    body = AlterUserScramCredentialsRequest(upsertions=[user])
    with blocking.BlockingCluster(bootstrap) as cluster:
        wish = request_of(ALTER_USER_SCRAM_CREDENTIALS, body)
        answer = cluster.run(lambda routes: routes.send_to_any(wish))
        assert answer.results[0].error_code == 0, answer


def make_certificate(path: Path) -> Path:
    """A key and its own certificate for 127.0.0.1, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "penstock test")])
    first_day = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(first_day)
        .not_valid_after(first_day + datetime.timedelta(days=36_500))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path
