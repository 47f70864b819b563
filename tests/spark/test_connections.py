import logging

import pytest

from penstock.errors import Refused
from penstock.spark.connections import cluster_for, kafka_properties, registry_client


def test_kafka_options_lose_their_prefix_and_others_are_left_out() -> None:
    properties = kafka_properties(
        {
            "kafka.bootstrap.servers": "one:9092",
            "kafka.security.protocol": "SSL",
            "subscribe": "orders",
        }
    )
    assert properties == {
        "bootstrap.servers": "one:9092",
        "security.protocol": "SSL",
        "client.id": "penstock-spark",
    }


def test_the_brokers_can_be_given_without_the_prefix() -> None:
    assert kafka_properties({"bootstrap.servers": "one:9092"})["bootstrap.servers"] == "one:9092"


@pytest.mark.parametrize("options", [{}, {"kafka.bootstrap.servers": " "}])
def test_options_without_brokers_are_refused(options: dict[str, str]) -> None:
    message = r"kafka\.bootstrap\.servers is missing.* use CREATE TEMPORARY VIEW"
    with pytest.raises(Refused, match=message):
        kafka_properties(options)


def test_properties_without_effect_are_reported_with_the_nearest_that_has_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = {"kafka.bootstrap.servers": "one:9092", "kafka.nonsense": "1", "kafka.clientid": "a"}
    with caplog.at_level(logging.WARNING):
        kafka_properties(options)
        kafka_properties(options)
        kafka_properties({"kafka.bootstrap.servers": "one:9092", "kafka.batch.size": "9999"})
    assert caplog.messages == [
        "option kafka.clientid has no effect in Penstock's source and sink;"
        " did you mean kafka.client.id?",
        "option kafka.nonsense has no effect in Penstock's source and sink",
    ]


def test_the_same_properties_give_the_same_connections() -> None:
    properties = {"bootstrap.servers": "127.0.0.1:1", "client.id": "a"}
    assert cluster_for(properties) is cluster_for(dict(properties))
    assert cluster_for(properties) is not cluster_for({**properties, "client.id": "b"})


def test_the_registrys_address_may_contain_a_login() -> None:
    client = registry_client("http://eve:s%40crt@127.0.0.1:8081,http://127.0.0.1:8082")
    assert client.api.urls == ("http://127.0.0.1:8081", "http://127.0.0.1:8082")
    assert registry_client("http://eve:s%40crt@127.0.0.1:8081,http://127.0.0.1:8082") is client
