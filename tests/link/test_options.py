"""Properties as people have them in their files."""

import pytest

from penstock.errors import Refused
from penstock.link.login import Login
from penstock.link.options import settings_from
from penstock.link.settings import LinkSettings
from penstock.link.tls import Tls


def test_nothing_said_is_in_the_clear() -> None:
    assert settings_from({"fetch.min.bytes": "1"}) == LinkSettings()
    told = settings_from({"client.id": "job", "request.timeout.ms": "1500"})
    assert (told.client_id, told.answer_ms) == ("job", 1500)


def test_both_clients_names_mean_the_same() -> None:
    librdkafka = settings_from(
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": "ann",
            "sasl.password": 'p"w',
            "ssl.ca.location": "/ca.pem",
        }
    )
    java = settings_from(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
            ' username="ann" password="p\\"w";',
            "ssl.truststore.location": "/ca.pem",
            "ssl.truststore.type": "PEM",
        }
    )
    assert librdkafka == java
    assert java.login == Login("ann", 'p"w', "SCRAM-SHA-512")
    assert java.tls == Tls(ca_file="/ca.pem")


def test_host_names_are_checked_unless_told_otherwise() -> None:
    name = "ssl.endpoint.identification.algorithm"
    for said, checked in (("https", True), ("", False), ("none", False)):
        tls = settings_from({"security.protocol": "SSL", name: said}).tls
        assert tls is not None
        assert tls.checks_hostname is checked


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"security.protocol": "TLS"}, "is none of PLAINTEXT, SSL"),
        ({"sasl.oauthbearer.config": "x"}, "sasl.oauthbearer.config is not understood"),
        ({"security.protocol": "SASL_SSL"}, "a login needs sasl.mechanism"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/t.jks"}, "must be PEM"),
        ({"request.timeout.ms": "soon"}, "'soon' is no number"),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "GSSAPI",
                "sasl.username": "a",
                "sasl.password": "b",
            },
            "GSSAPI is not known here",
        ),
    ],
)
def test_what_is_not_understood_is_refused(properties: dict[str, str], why: str) -> None:
    with pytest.raises(Refused, match=why):
        settings_from(properties)
