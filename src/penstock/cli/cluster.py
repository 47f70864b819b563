"""`penstock cluster …`: the brokers of a cluster."""

from typing import Final

import typer

from penstock.cli.connect import WAIT_S, admin, kafka_errors
from penstock.cli.options import LOCAL_BOOTSTRAP, AsJson, Bootstrap
from penstock.cli.output import cell, show_json, show_table

app: Final = typer.Typer(help="Show a cluster.", no_args_is_help=True)


@app.callback()
def _commands() -> None:
    """Show a cluster."""


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
