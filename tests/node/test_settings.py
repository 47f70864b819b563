"""The settings of a node."""

import re
from pathlib import Path
from typing import Any

import pytest

from penstock.config.resolve import view
from penstock.coordination.groups.settings import GroupSettings
from penstock.model import NodeId
from penstock.node.http_process import HttpOptions
from penstock.node.settings import (
    QUICK,
    InvalidSettingsError,
    NodeSettings,
    broker_view,
    controller_view,
    node_settings,
)


def test_without_settings_a_node_has_the_defaults(tmp_path: Path) -> None:
    settings = node_settings(folder=tmp_path)
    assert (settings.host, settings.kafka_port, settings.node_id) == ("127.0.0.1", 9092, 1)
    broker, controller = broker_view(settings), controller_view(settings)
    assert (broker.node_id, broker.network.connections_max, broker.can_delete_topics) == (
        1,
        4000,
        True,
    )
    assert (controller.node_id, controller.default_partition_count) == (1, 1)


def rebalance_delay_ms(settings: NodeSettings) -> int:
    return view(GroupSettings, settings.values).initial_rebalance_delay_ms


def test_the_default_folder_is_in_the_working_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert node_settings().folder == tmp_path / "penstock-data"


def test_the_command_line_overrides_a_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "# a broker's own\n"
        "node.id : 7\n"
        "listeners=CONTROLLER://:9093,PLAINTEXT://10.0.0.1:19092\n"
        "advertised.listeners=PLAINTEXT://broker.example:19092\n"
        "log.dirs=/var/lib/kafka\n"
        "num.partitions=3\n"
        "default.replication.factor=2\n"
    )
    settings = node_settings(properties=file, given={"num.partitions": "5"}, insecure=True)
    assert settings.node_id == NodeId(7)
    assert (settings.host, settings.kafka_port) == ("10.0.0.1", 19092)
    assert (settings.shown_host, settings.shown_port(9092)) == ("broker.example", 19092)
    assert settings.folder == Path("/var/lib/kafka")
    assert controller_view(settings).default_partition_count == 5
    assert settings.values.integer("default.replication.factor") == 2
    nearer = node_settings(folder=tmp_path, kafka_port=0, host="127.0.0.1", properties=file)
    assert (nearer.folder, nearer.host, nearer.kafka_port) == (tmp_path, "127.0.0.1", 0)


def test_a_quick_node_waits_for_no_second_member_by_default(tmp_path: Path) -> None:
    key = next(iter(QUICK))
    assert rebalance_delay_ms(node_settings(folder=tmp_path, quick=True)) == 0
    assert rebalance_delay_ms(node_settings(folder=tmp_path, quick=True, given={key: "7"})) == 7


KAFKA_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
num.network.threads=3
num.partitions=0
authorizer.class.name = org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found: false
ssl.keystore.location \\
    /etc/kafka/keystore.jks
! sasl.enabled.mechanisms=PLAIN
"""


def test_a_file_with_unknown_settings_is_refused_and_all_are_named(
    tmp_path: Path,
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(KAFKA_PROPERTIES)
    with pytest.raises(InvalidSettingsError) as refused:
        node_settings(folder=tmp_path, properties=file)
    message = str(refused.value)
    assert message.startswith("server.properties: unknown setting process.roles, ")
    for name in ("controller.quorum.bootstrap.servers", "num.network.threads"):
        assert name in message
    security = "authorizer.class.name, allow.everyone.if.no.acl.found, ssl.keystore.location"
    assert f"{security} would have no effect" in message
    assert "Remove them; docs/configuration.md lists all settings" in message
    assert "num.partitions" in message  # an invalid value
    assert "sasl.enabled" not in message  # a comment


def test_an_unknown_setting_has_the_same_error_in_a_file_and_as_an_option(tmp_path: Path) -> None:
    file = tmp_path / "broker.properties"
    file.write_text("num.partitionz=3\n")
    with pytest.raises(
        InvalidSettingsError, match=r"unknown setting num\.partitionz\. Remove it"
    ) as in_file:
        node_settings(folder=tmp_path, properties=file)
    with pytest.raises(InvalidSettingsError) as alone:
        node_settings(folder=tmp_path, given={"num.partitionz": "3"})
    assert str(in_file.value) == f"broker.properties: {alone.value}"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "this-machine.example", "fd00::7"])
def test_an_address_that_other_machines_reach_needs_insecure(host: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingsError, match="add --insecure"):
        node_settings(folder=tmp_path, host=host, advertised="here")
    listeners = {"listeners": f"PLAINTEXT://{f'[{host}]' if ':' in host else host}:9092"}
    with pytest.raises(InvalidSettingsError, match="add --insecure"):
        node_settings(folder=tmp_path, given=listeners, advertised="here")
    settings = node_settings(folder=tmp_path, host=host, advertised="here", insecure=True)
    assert settings.host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_a_loopback_address_needs_no_option(host: str, tmp_path: Path) -> None:
    assert node_settings(folder=tmp_path, host=host).shown_host == host


def test_an_address_that_clients_cannot_connect_to_is_refused(tmp_path: Path) -> None:
    for advertised in (None, "0.0.0.0", "[::]"):
        with pytest.raises(InvalidSettingsError, match="add --advertise"):
            node_settings(folder=tmp_path, host="0.0.0.0", advertised=advertised, insecure=True)
    with pytest.raises(InvalidSettingsError, match="add --advertise"):
        node_settings(folder=tmp_path, given={"listeners": "PLAINTEXT://:9092"}, insecure=True)


def test_clients_get_the_advertised_address(tmp_path: Path) -> None:
    shown = node_settings(folder=tmp_path, host="0.0.0.0", advertised="here", insecure=True)
    assert (shown.shown_host, shown.shown_port(9092)) == ("here", 9092)
    behind = node_settings(folder=tmp_path, advertised="gate.example:4000")
    assert (behind.shown_host, behind.shown_port(9092)) == ("gate.example", 4000)
    assert node_settings(folder=tmp_path, advertised="[::1]").shown_host == "::1"


def test_an_invalid_advertised_address_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingsError, match="not an address"):
        node_settings(folder=tmp_path, advertised="here:port")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"nope": "1"}, "nope"),
        ({"num.partitions": "0"}, "num.partitions"),
        ({"log.dirs": "/a,/b"}, "log.dirs"),
        ({"listeners": "9092"}, "use PLAINTEXT://HOST:PORT"),
        ({"listeners": "SASL_SSL://:9093,CONTROLLER://:9094"}, "TLS and SASL are not supported"),
        ({"listeners": "PLAINTEXT://localhost:9092,SSL://:9093"}, "TLS and SASL are not supported"),
        ({"ssl.keystore.location": "/k"}, "would have no effect"),
    ],
)
def test_invalid_settings_are_refused_before_anything_is_opened(
    given: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidSettingsError, match=message):
        node_settings(given=given)


def test_an_invalid_port_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingsError, match="70000"):
        node_settings(folder=tmp_path, kafka_port=70_000)


def test_a_file_that_is_missing_or_binary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingsError, match="cannot be read"):
        node_settings(properties=tmp_path / "nope")
    (tmp_path / "binary").write_bytes(b"\xff\xfe=1\n")
    with pytest.raises(InvalidSettingsError, match="is not in UTF-8"):
        node_settings(properties=tmp_path / "binary")


def test_an_ipv6_address_is_in_brackets_before_a_port(tmp_path: Path) -> None:
    listeners = {"listeners": "PLAINTEXT://[::1]:9092"}
    settings = node_settings(folder=tmp_path, given=listeners, advertised="[fd00::7]:19092")
    assert (settings.host, settings.kafka_port) == ("::1", 9092)
    assert (settings.shown_host, settings.shown_port(9092)) == ("fd00::7", 19092)
    assert HttpOptions("k:9092", host="::1").shown_host == "[::1]"


VOTERS = "1@127.0.0.1:19092,2@127.0.0.1:19093,3@127.0.0.1:19094"


def test_a_voter_listens_at_its_own_entry_and_keeps_three_copies(tmp_path: Path) -> None:
    settings = node_settings(folder=tmp_path, node_id=2, voters=VOTERS, rack="b")
    assert (settings.host, settings.kafka_port, settings.node_id) == ("127.0.0.1", 19093, 2)
    assert (settings.shown_host, settings.shown_port(19093)) == ("127.0.0.1", 19093)
    assert settings.voters == (
        (1, "127.0.0.1", 19092),
        (2, "127.0.0.1", 19093),
        (3, "127.0.0.1", 19094),
    )
    assert (settings.rack, settings.join) == ("b", ())
    assert settings.values.integer("default.replication.factor") == 3
    assert settings.values.integer("min.insync.replicas") == 2


def test_what_is_given_wins_over_the_defaults_of_a_cluster(tmp_path: Path) -> None:
    settings = node_settings(
        folder=tmp_path, node_id=1, voters=VOTERS, given={"min.insync.replicas": "1"}
    )
    assert settings.values.integer("min.insync.replicas") == 1
    two = node_settings(folder=tmp_path, node_id=1, voters="1@h:1,2@h:2", insecure=True)
    assert two.values.integer("default.replication.factor") == 1


def test_a_voter_may_listen_elsewhere_than_others_connect_to(tmp_path: Path) -> None:
    settings = node_settings(
        folder=tmp_path, node_id=1, voters="1@public:443,2@h:2,3@h:3", host="127.0.0.1",
        kafka_port=9092,
    )  # fmt: skip
    assert (settings.host, settings.kafka_port) == ("127.0.0.1", 9092)
    assert (settings.shown_host, settings.shown_port(9092)) == ("public", 443)


def test_a_broker_that_joins_names_servers_and_itself(tmp_path: Path) -> None:
    settings = node_settings(folder=tmp_path, node_id=4, join="127.0.0.1:19092,[::1]:9")
    assert settings.join == (("127.0.0.1", 19092), ("::1", 9))
    assert (settings.node_id, settings.voters) == (4, ())
    assert settings.values.integer("default.replication.factor") == 1


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"node_id": 4, "voters": VOTERS}, "broker 4 is not among --voters, which lists 1, 2, 3"),
        ({"voters": VOTERS}, "add --id"),
        ({"join": "127.0.0.1:1"}, "add --id"),
        ({"node_id": 1, "voters": VOTERS, "join": "127.0.0.1:1"}, "exclude each other"),
        ({"node_id": 1, "voters": "1@127.0.0.1"}, "is not ID@HOST:PORT"),
        ({"node_id": 1, "voters": "127.0.0.1:9092"}, "is not ID@HOST:PORT"),
        ({"node_id": 1, "voters": "1@127.0.0.1:70000"}, "is not ID@HOST:PORT"),
        ({"node_id": 1, "voters": "1@127.0.0.1:1,1@127.0.0.1:2"}, "an id of its own"),
        ({"node_id": 1, "voters": "1@127.0.0.1:1,2@127.0.0.1:1"}, "an address of its own"),
        ({"node_id": 1, "voters": VOTERS, "kafka_port": 0}, "does not go with --voters"),
        ({"node_id": 2, "join": "127.0.0.1:port"}, "is not host:port"),
        ({"node_id": 1, "voters": "1@10.0.0.1:9092"}, "add --insecure"),
        ({"cluster_id": "two words"}, "--cluster-id 'two words'"),
    ],
)
def test_options_of_a_cluster_that_cannot_be_are_refused(
    tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidSettingsError, match=re.escape(reason)):
        node_settings(folder=tmp_path, **options)
