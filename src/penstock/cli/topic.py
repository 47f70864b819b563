"""`penstock topic …`: create, list, describe, alter, trim, delete."""

from typing import Annotated, Any, Final

import typer
from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own exports, undeclared
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
)

from penstock.cli.connect import (
    WAIT_S,
    admin,
    fail_with,
    is_unreachable,
    kafka_errors,
    no_topic,
    quiet_client,
)
from penstock.cli.error_output import REFUSED
from penstock.cli.options import LOCAL_BOOTSTRAP, AsJson, Bootstrap, read_pairs
from penstock.cli.output import cell, show_json, show_table

app: Final = typer.Typer(
    help="Create, list, describe, alter, trim and delete topics.", no_args_is_help=True
)

Settings = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", help="Topic setting: key=value; may be repeated."),
]
Name = Annotated[str, typer.Argument(metavar="TOPIC")]
Names = Annotated[list[str], typer.Argument(metavar="TOPIC")]
_INTERNAL: Final = ("__", "_schemas")
PARTITIONS_MAX: Final = 100_000  # the client library refuses more
REPLICAS_MAX: Final = 10_000  # as above


@app.command()
def create(
    names: Names,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions",
            "-p",
            min=-1,
            max=PARTITIONS_MAX,
            help="Number of partitions; -1: the broker's default.",
        ),
    ] = -1,
    replicas: Annotated[
        int,
        typer.Option(
            "--replicas",
            "-r",
            min=-1,
            max=REPLICAS_MAX,
            help="Replicas of each partition; -1: the broker's default.",
        ),
    ] = -1,
    config: Settings = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do nothing if the topic exists.")
    ] = False,
    bootstrap: Bootstrap = LOCAL_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Create topics."""
    settings = read_pairs(config)
    client = admin(bootstrap)
    topics = [
        NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=settings)
        for name in names
    ]
    ignored = KafkaError.TOPIC_ALREADY_EXISTS if if_not_exists else None
    with kafka_errors(bootstrap):
        _report(client.create_topics(topics), "created", as_json, ignored=ignored)


@app.command("list")
def list_topics(
    internal: Annotated[
        bool,
        typer.Option(
            "--internal",
            help="Include internal topics of brokers (__*) and of the registry (_schemas*).",
        ),
    ] = False,
    bootstrap: Bootstrap = LOCAL_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List topics with their partitions and replicas."""
    client = admin(bootstrap)
    with kafka_errors(bootstrap):
        topics = client.list_topics(timeout=WAIT_S).topics
    rows = [
        {
            "topic": name,
            "partitions": len(topics[name].partitions),
            "replicas": max(
                (len(partition.replicas) for partition in topics[name].partitions.values()),
                default=0,
            ),
        }
        for name in sorted(topics)
        if internal or not name.startswith(_INTERNAL)
    ]
    if as_json:
        show_json(rows)
    elif rows:
        titles = ["TOPIC", "PARTITIONS", "REPLICAS"]
        show_table(titles, [[cell(value) for value in row.values()] for row in rows])
    else:
        typer.echo("No topics. Create one with `penstock topic create NAME`.")


@app.command()
def describe(
    name: Name,
    all_settings: Annotated[
        bool, typer.Option("--all", "-a", help="Include settings with default values.")
    ] = False,
    bootstrap: Bootstrap = LOCAL_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show the partitions of a topic, their leaders and offsets, and the topic's settings."""
    client = admin(bootstrap)
    with kafka_errors(bootstrap, name):
        topic = client.list_topics(timeout=WAIT_S).topics.get(name)
    if topic is None:
        no_topic(name)
    if topic.error is not None:
        fail_with(topic.error, bootstrap, name)
    consumer = Consumer(quiet_client(bootstrap, {"group.id": "penstock-describe"}))
    rows = []
    with kafka_errors(bootstrap, name):
        for index, partition in sorted(topic.partitions.items()):
            start, end = consumer.get_watermark_offsets(TopicPartition(name, index), timeout=WAIT_S)
            rows.append(
                {
                    "partition": index,
                    "leader": partition.leader,
                    "replicas": sorted(partition.replicas),
                    "in_sync": sorted(partition.isrs),
                    "start_offset": start,
                    "end_offset": end,
                }
            )
        settings = _settings_of(client, name, include_defaults=all_settings)
    consumer.close()
    if as_json:
        show_json({"topic": name, "partitions": rows, "settings": settings})
        return
    titles = ["PARTITION", "LEADER", "REPLICAS", "IN SYNC", "START", "END"]
    show_table(titles, [[cell(value) for value in row.values()] for row in rows])
    if settings:
        typer.echo("")
        show_table(["SETTING", "VALUE"], [[key, value or ""] for key, value in settings.items()])


@app.command()
def alter(
    name: Name,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            min=1,
            max=PARTITIONS_MAX,
            help="New, higher number of partitions.",
        ),
    ] = None,
    config: Settings = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", help="Reset this setting to its default; may be repeated."),
    ] = None,
    bootstrap: Bootstrap = LOCAL_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Change a topic's settings, or add partitions."""
    settings = read_pairs(config)
    if partitions is None and not settings and not unset:
        raise typer.BadParameter("nothing to change: pass --partitions, --config or --unset")
    client = admin(bootstrap)
    if settings or unset:
        entries = [
            *(_entry(key, value, AlterConfigOpType.SET) for key, value in settings.items()),
            *(_entry(key, "", AlterConfigOpType.DELETE) for key in unset or ()),
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        with kafka_errors(bootstrap, name):
            client.incremental_alter_configs([resource])[resource].result(WAIT_S)
    if partitions is not None:
        with kafka_errors(bootstrap, name):
            client.create_partitions([NewPartitions(name, partitions)])[name].result(WAIT_S)
    if as_json:
        show_json({"topic": name, "altered": True})
    else:
        typer.echo(f"altered {name}")


@app.command()
def delete(names: Names, bootstrap: Bootstrap = LOCAL_BOOTSTRAP, as_json: AsJson = False) -> None:
    """Delete topics with all their records."""
    client = admin(bootstrap)  # must outlive its futures
    with kafka_errors(bootstrap):
        _report(client.delete_topics(names), "deleted", as_json)


@app.command()
def trim(
    name: Name,
    before: Annotated[
        int | None, typer.Option("--before", min=0, help="Delete records before this offset.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Delete all records that exist now.")
    ] = False,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="Only this partition; may be repeated."),
    ] = None,
    bootstrap: Bootstrap = LOCAL_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete the oldest records of a topic. The disk space is freed a minute later."""
    if (before is None) is not everything:
        raise typer.BadParameter("pass either --before OFFSET or --all")
    client = admin(bootstrap)
    with kafka_errors(bootstrap, name):
        topic = client.list_topics(timeout=WAIT_S).topics.get(name)
        if topic is None:
            no_topic(name)
        offset = OFFSET_END if before is None else before
        requested = [
            TopicPartition(name, index, offset)
            for index in sorted(topic.partitions)
            if not partition or index in partition
        ]
        futures = client.delete_records(requested)
        starts = {each.partition: done.result(WAIT_S) for each, done in futures.items()}
    rows = [
        {"topic": name, "partition": index, "start_offset": trimmed.low_watermark}
        for index, trimmed in sorted(starts.items())
    ]
    if as_json:
        show_json(rows)
    else:
        titles = ["TOPIC", "PARTITION", "START"]
        show_table(titles, [[cell(value) for value in row.values()] for row in rows])


def _report(
    futures: dict[str, Any], done: str, as_json: bool, *, ignored: int | None = None
) -> None:
    """Report the result for each topic; the exit status is 1 if any was refused."""
    results: list[dict[str, Any]] = []
    for name, future in futures.items():
        try:
            future.result(WAIT_S)
            results.append({"topic": name, done: True})
        except KafkaException as refusal:
            error = refusal.args[0]
            if is_unreachable(error):
                raise
            result = {"topic": name, done: False}
            if error.code() != ignored:
                result |= {"code": error.name(), "error": _reason(error)}
            results.append(result)
    if as_json:
        show_json(results)
    for result in () if as_json else results:
        if "error" in result:
            typer.echo(f"{result['topic']}: {result['error']}", err=True)
        else:
            typer.echo(f"{done if result[done] else 'exists:'} {result['topic']}")
    if any("error" in result for result in results):
        raise typer.Exit(REFUSED)


def _reason(error: KafkaError) -> str:
    if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return "the topic does not exist"
    return str(error.str())


def _settings_of(
    client: AdminClient, name: str, *, include_defaults: bool
) -> dict[str, str | None]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    entries = client.describe_configs([resource])[resource].result(WAIT_S)
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {
        key: entry.value
        for key, entry in sorted(entries.items())
        if include_defaults or entry.source == own
    }


def _entry(key: str, value: str, operation: AlterConfigOpType) -> ConfigEntry:
    return ConfigEntry(key, value, incremental_operation=operation)
