"""Properties as people have them in their files, for link and for librdkafka."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from penstock.errors import Refused
from penstock.link.sasl import Login
from penstock.link.settings import (
    LinkSettings,
    Tls,
    librdkafka_settings,
    link_settings,
    read_properties,
)


def test_without_properties_a_link_is_not_encrypted() -> None:
    assert link_settings({"fetch.min.bytes": "1"}) == LinkSettings()
    settings = link_settings({"client.id": "job", "request.timeout.ms": "1500"})
    assert (settings.client_id, settings.request_timeout_ms) == ("job", 1500)


def test_the_names_of_both_clients_mean_the_same() -> None:
    librdkafka = link_settings(
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": "ann",
            "sasl.password": 'p"w',
            "ssl.ca.location": "/ca.pem",
        }
    )
    java = link_settings(
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


def test_host_names_are_checked_unless_disabled() -> None:
    name = "ssl.endpoint.identification.algorithm"
    for algorithm, checked in (("https", True), ("", False), ("none", False)):
        tls = link_settings({"security.protocol": "SSL", name: algorithm}).tls
        assert tls is not None
        assert tls.checks_hostname is checked


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"security.protocol": "TLS"}, "is not one of PLAINTEXT, SSL"),
        ({"sasl.oauthbearer.config": "x"}, "sasl.oauthbearer.config is not supported"),
        ({"security.protocol": "SASL_SSL"}, "a login needs sasl.mechanism"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/t.jks"}, "must be PEM"),
        ({"request.timeout.ms": "soon"}, "'soon' is not a number"),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "GSSAPI",
                "sasl.username": "a",
                "sasl.password": "b",
            },
            "GSSAPI is not supported here",
        ),
    ],
)
def test_invalid_properties_are_refused(properties: dict[str, str], reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        link_settings(properties)


def test_librdkafka_gets_the_same_in_its_own_names() -> None:
    java = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": 'x.PlainLoginModule required username="ann" password="p\\"w";',
        "ssl.truststore.location": "/ca.pem",
        "ssl.truststore.type": "PEM",
        "client.id": "job",
    }
    assert librdkafka_settings(java) == {
        "client.id": "job",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": 'p"w',
        "ssl.ca.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "https",
    }
    assert librdkafka_settings({"bootstrap.servers": "a:1"}) == {
        "bootstrap.servers": "a:1",
        "security.protocol": "PLAINTEXT",
    }


def test_a_properties_file_is_read_and_its_mistakes_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# who we are\nclient.id = job\n\n! a remark\nsasl.username=a=b\n")
    assert read_properties(str(file)) == {"client.id": "job", "sasl.username": "a=b"}
    for text, reason in (
        ("client.id\n", "line 1: 'client.id' is not key=value"),
        ("ssl.keystore.location=x\n", "ssl.keystore.location is not supported"),
        ("key.serializer=x\n", "key.serializer is not supported here"),
        ("security.protocol=SASL_SSL\n", "a login needs sasl.mechanism"),
    ):
        file.write_text(text)
        with pytest.raises(Refused, match=reason):
            read_properties(str(file))
    with pytest.raises(Refused, match="cannot read"):
        read_properties(str(tmp_path / "nowhere"))


def test_librdkafka_accepts_every_property_that_a_file_may_have(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    properties = {
        "client.id": "job",
        "client.rack": "a",
        "client.dns.lookup": "use_all_dns_ips",
        "connections.max.idle.ms": "10000",
        "metadata.max.age.ms": "10000",
        "reconnect.backoff.max.ms": "1000",
        "reconnect.backoff.ms": "100",
        "request.timeout.ms": "1000",
        "retry.backoff.ms": "100",
        "socket.connection.setup.timeout.ms": "1000",
    }
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    settings: Any = {**librdkafka_settings(read_properties(str(file))), "log_level": 0}
    AdminClient(settings)
    Producer(settings)
    Consumer({**settings, "group.id": "g"})
