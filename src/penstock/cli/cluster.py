"""`penstock cluster …`: brokers and partitions, settings of all brokers, leaders, voters."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from penstock.cli.cluster_report import (
    MIN_INSYNC,
    SHOWN_MAX,
    PartitionProblem,
    broker_rows,
    led_by_others,
    min_insync_of,
    problem_counts,
    problems,
    replica_rows,
    under_replicated,
)
from penstock.cli.connect import (
    WAIT_S,
    admin,
    check_reachable,
    kafka_errors,
    kafka_properties,
)
from penstock.cli.error_output import REFUSED, UNREACHABLE, fail
from penstock.cli.options import LOCAL_BOOTSTRAP, AsJson, Bootstrap, read_pairs
from penstock.cli.output import cell, counted, show_json, show_table
from penstock.clock import wall_ms
from penstock.errors import ErrorCode, Refused
from penstock.link.blocking import BlockingCluster
from penstock.link.cluster_admin import (
    VoterPlace,
    add_voter,
    describe_cluster,
    describe_quorum,
    elect_preferred_leaders,
    remove_voter,
)
from penstock.link.settings import link_settings
from penstock.link.topic_admin import BROKER, alter_configs, describe_configs, describe_topics
from penstock.protocol.messages.quorum import (
    DescribedQuorumPartition,
    ListenerEndpoint,
    QuorumReplica,
)

app: Final = typer.Typer(
    help="Show the state of a cluster; change settings of its brokers; move leaders; change who "
    "votes on its metadata.",
    no_args_is_help=True,
)
LISTENER: Final = "PLAINTEXT"
ALL_BROKERS: Final = ""


class VoterChange(StrEnum):
    """What to do with a voter."""

    ADD = "add"
    REMOVE = "remove"


@contextmanager
def _connected(bootstrap: str) -> Iterator[BlockingCluster]:
    """A cluster that is reachable; errors inside become messages and exit statuses."""
    check_reachable(bootstrap)
    limit_ms = int(WAIT_S * 1000)
    settings = link_settings(kafka_properties(bootstrap))
    settings = replace(settings, request_timeout_ms=limit_ms, retry_timeout_ms=limit_ms)
    try:
        with BlockingCluster(bootstrap, settings) as cluster:
            yield cluster
    except Refused as refusal:
        fail(refusal.message)
    except OSError as error:
        fail(str(error), UNREACHABLE)


@app.command()
def info(bootstrap: Bootstrap = LOCAL_BOOTSTRAP, as_json: AsJson = False) -> None:
    """Show the cluster's id, its brokers, and how many topics and partitions it has."""
    client = admin(bootstrap)
    with kafka_errors(bootstrap):
        metadata = client.list_topics(timeout=WAIT_S)
    partitions = [each for topic in metadata.topics.values() for each in topic.partitions.values()]
    rows = [
        {
            "broker": node_id,
            "address": f"{broker.host}:{broker.port}",
            "controller": node_id == metadata.controller_id,
            "leaders": sum(each.leader == node_id for each in partitions),
            "replicas": sum(node_id in each.replicas for each in partitions),
        }
        for node_id, broker in sorted(metadata.brokers.items())
    ]
    totals = {
        "cluster": metadata.cluster_id,
        "topics": len(metadata.topics),
        "partitions": len(partitions),
        "offline": sum(each.leader < 0 for each in partitions),
        "under_replicated": sum(len(each.isrs) < len(each.replicas) for each in partitions),
    }
    if as_json:
        show_json({**totals, "brokers": rows})
        return
    for name, value in totals.items():
        typer.echo(f"{name.replace('_', ' ')}: {value}")
    typer.echo("")
    titles = ["BROKER", "ADDRESS", "CONTROLLER", "LEADERS", "REPLICAS"]
    show_table(titles, [[cell(value) for value in row.values()] for row in rows])


@app.command()
def status(bootstrap: Bootstrap = LOCAL_BOOTSTRAP, as_json: AsJson = False) -> None:
    """Show the brokers, and the partitions that are not in sync on all their replicas."""
    with _connected(bootstrap) as cluster:
        described = cluster.run(describe_cluster(with_fenced=True))
        controller = cluster.run(describe_quorum()).leader_id
        topics = cluster.run(describe_topics())
        affected = under_replicated(topics)
        configs = cluster.run(describe_configs(list(affected), [MIN_INSYNC])) if affected else {}
    rows = problems(affected, min_insync_of(configs), described.brokers)
    brokers = broker_rows(described.brokers, topics)
    counts = {"total": sum(len(topic.partitions) for topic in topics), **problem_counts(rows)}
    if as_json:
        show_json(
            {
                "cluster_id": described.cluster_id,
                "controller": controller,
                "brokers": brokers,
                "partitions": counts,
                "problems": [row.to_json() for row in rows[:SHOWN_MAX]],
            }
        )
        return
    typer.echo(f"Cluster {described.cluster_id}, controller {controller}")
    titles = ["BROKER", "ADDRESS", "STATE", "RACK", "LEADERS", "REPLICAS"]
    show_table(titles, [[cell(value) for value in row.values()] for row in brokers])
    typer.echo(
        f"{counted(counts['total'], 'partition')}: {counts['under_replicated']} under-replicated, "
        f"{counts['under_min_insync']} under min.insync.replicas, {counts['offline']} offline"
    )
    _show_problems(rows)


def _show_problems(rows: list[PartitionProblem]) -> None:
    if not rows:
        return
    titles = ["PARTITION", "LEADER", "IN SYNC", "MISSING"]
    shown = [
        [
            row.partition,
            cell(row.leader),
            cell(row.in_sync),
            ", ".join(f"{node} ({reason})" for node, reason in row.missing.items()),
        ]
        for row in rows[:SHOWN_MAX]
    ]
    show_table(titles, shown)
    if len(rows) > SHOWN_MAX:
        typer.echo(f"and {len(rows) - SHOWN_MAX} more")


@app.command()
def elect(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Only these topics.")
    ] = None,
    bootstrap: Bootstrap = LOCAL_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Make the preferred replica of each partition its leader, where it is in sync.

    Leaders move when brokers fail or restart; this spreads them over the brokers again.
    """
    with _connected(bootstrap) as cluster:
        described = cluster.run(describe_topics())
        unknown = set(topics or ()) - {topic.name for topic in described}
        if unknown:
            fail(f"no such topic: {', '.join(sorted(unknown))}")
        chosen = [topic for topic in described if not topics or topic.name in topics]
        partitions = led_by_others(chosen)
        results = cluster.run(elect_preferred_leaders(partitions)) if partitions else {}
    accepted = (ErrorCode.none, ErrorCode.election_not_needed)
    names = {f"{topic}-{index}": row for (topic, index), row in results.items()}
    elected = [name for name, row in names.items() if row.error_code in accepted]
    refused = {
        name: row.error_message or row.error_code.name
        for name, row in names.items()
        if row.error_code not in accepted
    }
    if as_json:
        show_json({"elected": elected, "refused": refused})
    else:
        typer.echo(f"{counted(len(elected), 'leader')} moved to the preferred replica")
        for name, reason in refused.items():
            typer.echo(f"{name}: {reason}", err=True)
    if refused:
        raise typer.Exit(REFUSED)


@app.command()
def alter(
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", help="Broker setting: key=value; may be repeated."),
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", help="Reset this setting to its default; may be repeated."),
    ] = None,
    bootstrap: Bootstrap = LOCAL_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Change settings of all brokers while they run, such as min.insync.replicas."""
    changes: dict[str, str | None] = {**read_pairs(config), **dict.fromkeys(unset or ())}
    if not changes:
        raise typer.BadParameter("nothing to change: pass --config or --unset")
    with _connected(bootstrap) as cluster:
        cluster.run(alter_configs(ALL_BROKERS, changes, resource_type=BROKER))
    if as_json:
        show_json({"altered": changes})
    else:
        typer.echo("altered the settings of all brokers")


@app.command()
def voters(
    change: Annotated[
        VoterChange | None,
        typer.Argument(metavar="[add|remove]", help="Give a broker a vote, or take it."),
    ] = None,
    broker: Annotated[int | None, typer.Argument(metavar="[ID]", min=0, help="The broker.")] = None,
    bootstrap: Bootstrap = LOCAL_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show who votes on the cluster's metadata and how far each has come; add or remove a voter.

    A broker that is added must run and have caught up: start it with `penstock broker --join`.
    """
    if (change is None) != (broker is None):
        raise typer.BadParameter("name a change and a broker: voters add ID, voters remove ID")
    with _connected(bootstrap) as cluster:
        if change is not None and broker is not None:
            _change(cluster, change, broker)
        quorum = cluster.run(describe_quorum())
    rows = replica_rows(quorum, wall_ms())
    if as_json:
        show_json(_quorum_document(quorum, rows))
        return
    typer.echo(
        f"Leader {quorum.leader_id}, epoch {quorum.leader_epoch}, "
        f"high watermark {quorum.high_watermark}"
    )
    titles = ["REPLICA", "ROLE", "END OFFSET", "LAG", "FETCHED MS AGO", "CAUGHT UP MS AGO"]
    show_table(titles, [[cell(value) for value in row.values()] for row in rows])


def _quorum_document(
    quorum: DescribedQuorumPartition, rows: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "leader": quorum.leader_id,
        "epoch": quorum.leader_epoch,
        "high_watermark": quorum.high_watermark,
        "replicas": rows,
    }


def _change(cluster: BlockingCluster, change: VoterChange, broker: int) -> None:
    quorum = cluster.run(describe_quorum())
    if change is VoterChange.REMOVE:
        known = _replica(quorum.current_voters, broker)
        if known is None:
            fail(f"broker {broker} is not a voter; `penstock cluster voters` lists them.")
        cluster.run(remove_voter(VoterPlace(broker, known.replica_directory_id)))
        return
    if _replica(quorum.current_voters, broker) is not None:
        fail(f"broker {broker} is a voter already.")
    known = _replica(quorum.observers, broker)
    brokers = cluster.run(describe_cluster(with_fenced=True)).brokers
    address = next((each for each in brokers if each.broker_id == broker), None)
    if known is None or address is None:
        fail(
            f"broker {broker} does not follow the cluster's metadata. Start it with "
            f"`penstock broker --id {broker} --join HOST:PORT`, then retry."
        )
    listeners = [ListenerEndpoint(LISTENER, address.host, address.port)]
    cluster.run(add_voter(VoterPlace(broker, known.replica_directory_id, listeners)))


def _replica(replicas: Any, broker: int) -> QuorumReplica | None:
    return next((each for each in replicas if each.replica_id == broker), None)
