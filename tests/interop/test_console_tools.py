"""Apache Kafka's own command line tools against the broker, as an operator would use them."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.testing.embedded import EmbeddedBroker
from tests.support.apache_kafka import java_command, run_tool

pytestmark = [pytest.mark.interop, pytest.mark.slow]

TOOLS = "org.apache.kafka.tools"
Tool = Callable[..., str]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        yield broker.bootstrap


@pytest.fixture(scope="module")
def tool(bootstrap: str, kafka_libs: Path) -> Tool:
    """Run a tool of Kafka's against the broker; what it printed."""

    def run(name: str, *arguments: str) -> str:
        full_name = name if name.startswith("kafka.") else f"{TOOLS}.{name}"
        return run_tool(kafka_libs, full_name, "--bootstrap-server", bootstrap, *arguments)

    return run


def produce(kafka_libs: Path, bootstrap: str, topic: str, lines: str) -> None:
    command = java_command(
        kafka_libs,
        f"{TOOLS}.ConsoleProducer",
        "--bootstrap-server",
        bootstrap,
        "--topic",
        topic,
        "--reader-property",
        "parse.key=true",
        "--reader-property",
        "key.separator=:",
    )
    subprocess.run(command, input=lines, text=True, check=True, timeout=60, capture_output=True)


def test_a_topic_from_birth_to_death(tool: Tool, kafka_libs: Path, bootstrap: str) -> None:
    topic = ("--topic", "tools")
    assert "Created topic tools." in tool(
        "TopicCommand", "--create", *topic, "--partitions", "3", "--config", "retention.ms=1000000"
    )
    described = tool("TopicCommand", "--describe", *topic)
    assert "PartitionCount: 3" in described
    assert "retention.ms=1000000" in described
    assert "tools" in tool("TopicCommand", "--list").split()

    produce(kafka_libs, bootstrap, "tools", "a:1\nb:2\nc:3\n")
    consumed = tool("consumer.ConsoleConsumer", *topic, "--from-beginning", "--max-messages", "3")
    assert sorted(consumed.split()) == ["1", "2", "3"]
    offsets = tool("GetOffsetShell", *topic)
    assert sum(int(line.rsplit(":", 1)[1]) for line in offsets.split()) == 3

    tool("TopicCommand", "--alter", *topic, "--partitions", "5")
    assert "PartitionCount: 5" in tool("TopicCommand", "--describe", *topic)
    tool("TopicCommand", "--delete", *topic)
    assert "tools" not in tool("TopicCommand", "--list").split()


def test_settings_are_set_shown_and_taken_back(tool: Tool) -> None:
    tool("TopicCommand", "--create", "--if-not-exists", "--topic", "configured")
    entity = ("--entity-type", "topics", "--entity-name", "configured")
    config = "kafka.admin.ConfigCommand"
    tool(config, "--alter", *entity, "--add-config", "cleanup.policy=compact,segment.ms=60000")
    described = tool(config, "--describe", *entity)
    assert "cleanup.policy=compact" in described
    assert "segment.ms=60000" in described
    tool(config, "--alter", *entity, "--delete-config", "segment.ms")
    assert "segment.ms=60000" not in tool(config, "--describe", *entity)


def test_a_group_is_listed_described_reset_and_deleted(
    tool: Tool, kafka_libs: Path, bootstrap: str
) -> None:
    tool("TopicCommand", "--create", "--topic", "grouped")
    produce(kafka_libs, bootstrap, "grouped", "a:1\na:2\na:3\n")
    tool(
        "consumer.ConsoleConsumer",
        *("--topic", "grouped", "--from-beginning", "--max-messages", "3"),
        *("--group", "readers"),
    )
    command = "consumer.group.ConsumerGroupCommand"
    group = ("--group", "readers")
    assert "readers" in tool(command, "--list").split()
    (row,) = [
        line.split()
        for line in tool(command, "--describe", *group).splitlines()
        if line.startswith("readers")
    ]
    assert row[1:6] == ["grouped", "0", "3", "3", "0"]
    tool(
        command,
        *("--reset-offsets", *group, "--topic", "grouped", "--to-earliest", "--execute"),
    )
    described = tool(command, "--describe", *group)
    assert "grouped         0          0               3               3" in described
    assert "Deletion of requested consumer groups ('readers') was successful" in tool(
        command, "--delete", *group
    )


def test_the_cluster_is_described(tool: Tool) -> None:
    tool("TopicCommand", "--create", "--if-not-exists", "--topic", "configured")
    versions = tool("BrokerApiVersionsCommand")
    assert "Produce(0): 0 to 13" in versions
    assert "UNSUPPORTED" in versions, "what is not served is not advertised"
    quorum = tool("MetadataQuorumCommand", "describe", "--status")
    assert "LeaderId:" in quorum
    assert "configured-0" in tool("LogDirsCommand", "--describe")
