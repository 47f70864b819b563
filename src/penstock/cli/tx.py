"""`penstock tx …`: transactions."""

from typing import Annotated, Final

import typer

from penstock.cli.connect import check_reachable, kafka_properties
from penstock.cli.error_output import UNREACHABLE, fail
from penstock.cli.options import LOCAL_BOOTSTRAP, AsJson, Bootstrap
from penstock.cli.output import show_json, show_table
from penstock.errors import Refused
from penstock.link.blocking import BlockingCluster
from penstock.link.settings import link_settings
from penstock.monitor.cluster_requests import list_transactions

OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")
app: Final = typer.Typer(help="Show transactions.", no_args_is_help=True)


@app.callback()
def _commands() -> None:
    """Show transactions."""


@app.command("list")
def list_ids(
    only_open: Annotated[
        bool, typer.Option("--open", help="Only transactions that are open or being ended.")
    ] = False,
    bootstrap: Bootstrap = LOCAL_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List transactional ids with their producers and states."""
    check_reachable(bootstrap)
    try:
        with BlockingCluster(bootstrap, link_settings(kafka_properties(bootstrap))) as cluster:
            found = cluster.run(list_transactions())
    except Refused as refusal:
        fail(refusal.message)
    except OSError as error:
        fail(str(error), UNREACHABLE)
    rows = [
        {"transactional_id": each[0], "producer_id": each[1], "state": each[2]}
        for each in sorted(found)
        if not only_open or each.transaction_state in OPEN_STATES
    ]
    if as_json:
        show_json(rows)
    elif rows:
        titles = ["TRANSACTIONAL ID", "PRODUCER", "STATE"]
        show_table(titles, [[str(value) for value in row.values()] for row in rows])
    else:
        typer.echo("No transactions.")
