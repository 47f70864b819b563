"""What a node is started with."""

from pathlib import Path

import pytest

from penstock.broker.settings import BrokerSettings
from penstock.coordination.groups.settings import GroupSettings
from penstock.coordination.transactions import TransactionSettings
from penstock.model import Millis, NodeId
from penstock.node.http_process import HttpOptions
from penstock.node.settings import (
    QUICK,
    BadSettings,
    broker_view,
    controller_view,
    group_view,
    node_settings,
    transaction_view,
    unknown_properties,
    upkeep_view,
)
from penstock.upkeep.scheduler import UpkeepSettings


def test_without_any_setting_every_part_has_its_own_defaults(tmp_path: Path) -> None:
    settings = node_settings(folder=tmp_path)
    assert (settings.host, settings.kafka_port, settings.node_id) == ("127.0.0.1", 9092, 1)
    assert broker_view(settings) == BrokerSettings()
    assert group_view(settings) == GroupSettings()
    assert transaction_view(settings) == TransactionSettings()
    assert upkeep_view(settings) == UpkeepSettings()


def test_the_data_live_where_one_stands_unless_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert node_settings().folder == tmp_path / "penstock-data"


def test_a_file_gives_way_to_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "# a Kafka broker's own\n"
        "process.roles=broker,controller\n"
        "node.id = 7\n"
        "listeners=CONTROLLER://:9093,PLAINTEXT://10.0.0.1:19092\n"
        "advertised.listeners=PLAINTEXT://broker.example:19092\n"
        "log.dirs=/var/lib/kafka\n"
        "num.partitions=3\n"
        "default.replication.factor=2\n"
    )
    settings = node_settings(properties=file, given={"num.partitions": "5"})
    assert settings.node_id == NodeId(7)
    assert (settings.host, settings.kafka_port) == ("10.0.0.1", 19092)
    assert (settings.shown_host, settings.shown_port(9092)) == ("broker.example", 19092)
    assert settings.folder == Path("/var/lib/kafka")
    assert controller_view(settings).default_partition_count == 5
    assert controller_view(settings).default_replication_factor == 2
    assert unknown_properties(file) == ["process.roles"]
    nearer = node_settings(folder=tmp_path, kafka_port=0, host="127.0.0.1", properties=file)
    assert (nearer.folder, nearer.host, nearer.kafka_port) == (tmp_path, "127.0.0.1", 0)


def test_a_quick_node_waits_for_no_second_member_unless_told(tmp_path: Path) -> None:
    key = next(iter(QUICK))
    assert group_view(node_settings(folder=tmp_path, quick=True)).initial_rebalance_delay_ms == 0
    told = node_settings(folder=tmp_path, quick=True, given={key: "7"})
    assert group_view(told).initial_rebalance_delay_ms == Millis(7)


def test_any_address_is_not_shown_to_clients(tmp_path: Path) -> None:
    assert node_settings(folder=tmp_path, host="0.0.0.0").shown_host == "127.0.0.1"
    shown = node_settings(folder=tmp_path, host="0.0.0.0", advertised="here")
    assert (shown.shown_host, shown.shown_port(9092)) == ("here", 9092)
    behind = node_settings(folder=tmp_path, advertised="gate.example:4000")
    assert (behind.shown_host, behind.shown_port(9092)) == ("gate.example", 4000)
    assert node_settings(folder=tmp_path, advertised="[::1]").shown_host == "::1"


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="no address"):
        node_settings(folder=tmp_path, advertised="here:port")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"nope": "1"}, "nope"),
        ({"num.partitions": "0"}, "num.partitions"),
        ({"log.dirs": "/a,/b"}, "log.dirs"),
        ({"listeners": "9092"}, "use PLAINTEXT://HOST:PORT"),
        ({"listeners": "SASL_SSL://:9093,CONTROLLER://:9094"}, "no TLS and no SASL"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_opened(given: dict[str, str], said: str) -> None:
    with pytest.raises(BadSettings, match=said):
        node_settings(given=given)


def test_a_port_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="70000"):
        node_settings(folder=tmp_path, kafka_port=70_000)


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="cannot be read"):
        node_settings(properties=tmp_path / "nope")
    (tmp_path / "binary").write_bytes(b"\xff\xfe=1\n")
    with pytest.raises(BadSettings, match="is no properties file"):
        node_settings(properties=tmp_path / "binary")


def test_an_address_of_ipv6_stands_in_brackets_before_a_port(tmp_path: Path) -> None:
    listeners = {"listeners": "PLAINTEXT://[::1]:9092"}
    settings = node_settings(folder=tmp_path, given=listeners, advertised="[fd00::7]:19092")
    assert (settings.host, settings.kafka_port) == ("::1", 9092)
    assert (settings.shown_host, settings.shown_port(9092)) == ("fd00::7", 19092)
    assert HttpOptions("k:9092", host="::1").shown_host == "[::1]"
