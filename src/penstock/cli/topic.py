"""`penstock topic …`: create, list, describe, alter, delete."""

from typing import Annotated, Any, Final

import typer
from confluent_kafka import KafkaError, KafkaException
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
    LOCAL,
    REFUSED,
    WAIT_S,
    Bootstrap,
    admin,
    fail,
    is_nobody,
    read_settings,
    telling,
)
from penstock.cli.output import AsJson, show_json, show_table

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True)

Settings = Annotated[
    list[str] | None, typer.Option("--config", "-c", help="A topic setting: key=value.")
]
Names = Annotated[list[str], typer.Argument(metavar="TOPIC")]
_INTERNAL: Final = ("__", "_schemas")
PARTITIONS_MAX: Final = 100_000  # more are refused by the client library
REPLICAS_MAX: Final = 10_000  # likewise


@app.command()
def create(
    names: Names,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions", "-p", min=-1, max=PARTITIONS_MAX, help="-1: the broker's default."
        ),
    ] = -1,
    replicas: Annotated[
        int,
        typer.Option(
            "--replicas", "-r", min=-1, max=REPLICAS_MAX, help="-1: the broker's default."
        ),
    ] = -1,
    config: Settings = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="A topic that is there is fine.")
    ] = False,
    bootstrap: Bootstrap = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Make topics."""
    settings = read_settings(config)
    client = admin(bootstrap)
    wanted = [
        NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=settings)
        for name in names
    ]
    fine = "TOPIC_ALREADY_EXISTS" if if_not_exists else None
    with telling(bootstrap):
        _report(client.create_topics(wanted), "created", as_json, fine=fine)


@app.command("list")
def list_topics(
    internal: Annotated[
        bool,
        typer.Option(
            "--internal", help="Also topics of the brokers (__*) and the registry (_schemas*)."
        ),
    ] = False,
    bootstrap: Bootstrap = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Show the topics with their partitions and replicas."""
    client = admin(bootstrap)
    with telling(bootstrap):
        found = client.list_topics(timeout=WAIT_S).topics
    rows = [
        {
            "topic": name,
            "partitions": len(found[name].partitions),
            "replicas": max((len(p.replicas) for p in found[name].partitions.values()), default=0),
        }
        for name in sorted(found)
        if internal or not name.startswith(_INTERNAL)
    ]
    if as_json:
        show_json(rows)
    elif rows:
        titles = ["TOPIC", "PARTITIONS", "REPLICAS"]
        show_table(titles, [[str(value) for value in row.values()] for row in rows])
    else:
        typer.echo("There are no topics yet: `penstock topic create NAME` makes one.")


@app.command()
def describe(
    name: Annotated[str, typer.Argument(metavar="TOPIC")],
    all_settings: Annotated[
        bool, typer.Option("--all", "-a", help="Also settings that have their default.")
    ] = False,
    bootstrap: Bootstrap = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Show one topic: partitions, their leaders and offsets, and settings."""
    from confluent_kafka import Consumer, TopicPartition

    from penstock.cli.connect import quiet_client, tell

    client = admin(bootstrap)
    with telling(bootstrap, name):
        topic = client.list_topics(timeout=WAIT_S).topics.get(name)
    if topic is None:
        fail(f"there is no topic {name!r}. `penstock topic list` shows what there is.")
    if topic.error is not None:
        tell(topic.error, bootstrap, name)
    consumer = Consumer(quiet_client(bootstrap, {"group.id": "penstock-describe"}))
    rows = []
    with telling(bootstrap, name):
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
        settings = _settings_of(client, name, all_settings)
    consumer.close()
    if as_json:
        show_json({"topic": name, "partitions": rows, "settings": settings})
        return
    titles = ["PARTITION", "LEADER", "REPLICAS", "IN SYNC", "START", "END"]
    show_table(titles, [[_cell(value) for value in row.values()] for row in rows])
    if settings:
        typer.echo("")
        show_table(["SETTING", "VALUE"], [[key, value or ""] for key, value in settings.items()])


@app.command()
def alter(
    name: Annotated[str, typer.Argument(metavar="TOPIC")],
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, max=PARTITIONS_MAX, help="Widen to so many."),
    ] = None,
    config: Settings = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", help="Back to the default: key.")
    ] = None,
    bootstrap: Bootstrap = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Change a topic's settings, or give it more partitions."""
    settings = read_settings(config)
    if partitions is None and not settings and not unset:
        raise typer.BadParameter("nothing to change: give --partitions, --config or --unset")
    client = admin(bootstrap)
    if settings or unset:
        entries = [
            *(_entry(key, value, AlterConfigOpType.SET) for key, value in settings.items()),
            *(_entry(key, "", AlterConfigOpType.DELETE) for key in unset or ()),
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        with telling(bootstrap, name):
            client.incremental_alter_configs([resource])[resource].result(WAIT_S)
    if partitions is not None:
        with telling(bootstrap, name):
            client.create_partitions([NewPartitions(name, partitions)])[name].result(WAIT_S)
    if as_json:
        show_json({"topic": name, "altered": True})
    else:
        typer.echo(f"altered {name}")


@app.command()
def delete(names: Names, bootstrap: Bootstrap = LOCAL, as_json: AsJson = False) -> None:
    """Delete topics with all that is in them."""
    client = admin(bootstrap)  # must outlive the futures it gives
    with telling(bootstrap):
        _report(client.delete_topics(names), "deleted", as_json)


def _report(futures: dict[str, Any], done: str, as_json: bool, *, fine: str | None = None) -> None:
    """Say what became of each topic; the exit status is 1 if any was refused."""
    results: list[dict[str, Any]] = []
    for name, future in futures.items():
        try:
            future.result(WAIT_S)
            results.append({"topic": name, done: True})
        except KafkaException as refusal:
            error = refusal.args[0]
            if is_nobody(error):
                raise
            reason = "there is no such topic" if _is_unknown(error) else error.str()
            told = {"topic": name, done: False, "code": error.name(), "error": reason}
            results.append(told if error.name() != fine else {"topic": name, done: False})
    if as_json:
        show_json(results)
    for result in () if as_json else results:
        if "error" in result:
            typer.echo(f"{result['topic']}: {result['error']}", err=True)
        else:
            typer.echo(f"{done if result[done] else 'there already:'} {result['topic']}")
    if any("error" in result for result in results):
        raise typer.Exit(REFUSED)


def _is_unknown(error: KafkaError) -> bool:
    return bool(error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART)


def _settings_of(client: AdminClient, name: str, everything: bool) -> dict[str, str | None]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    entries = client.describe_configs([resource])[resource].result(WAIT_S)
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {
        key: entry.value
        for key, entry in sorted(entries.items())
        if everything or entry.source == own
    }


def _entry(key: str, value: str, operation: AlterConfigOpType) -> ConfigEntry:
    return ConfigEntry(key, value, incremental_operation=operation)


def _cell(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
