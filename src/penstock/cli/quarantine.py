"""`penstock quarantine`: what could not be read, why, and sending it back once it can be."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.reaching import (
    LOCAL,
    REFUSED,
    AsJson,
    Bootstrap,
    check_reachable,
    fail,
    login,
    show_json,
    show_table,
)
from penstock.cli.registry_link import LOCAL as REGISTRY
from penstock.cli.registry_link import RegistryUrl
from penstock.client.annotate import annotate, hexdump
from penstock.client.contract import Contract
from penstock.client.errors import ClientError, Reason
from penstock.client.frame import Side
from penstock.client.reading import Reading
from penstock.client.redrive import Found, look, redrive
from penstock.client.registry import Registry

app = typer.Typer(no_args_is_help=True, help="What could not be read, and sending it back.")

Topic = Annotated[str, typer.Argument(help="The topic they were in, without .quarantine.")]
OfReason = Annotated[Reason | None, typer.Option("--reason", help="Only those of this reason.")]


@app.command("list")
def list_found(
    topic: Topic,
    reason: OfReason = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Those that were sent back too.")
    ] = False,
    bootstrap: Bootstrap = LOCAL,
    as_json: AsJson = False,
) -> None:
    """What is in quarantine, oldest first."""
    found = [one for one in _look(bootstrap, topic, reason) if everything or not one.is_redriven]
    if as_json:
        show_json([_told(one) for one in found])
        return
    titles = ["PLACE", "WAS AT", "REASON", "SCHEMA", "DETAIL"]
    rows = [
        [
            f"{one.place.partition}:{one.place.offset}",
            f"{one.record.origin.partition}:{one.record.origin.offset}",
            str(one.record.verdict.reason),
            one.record.verdict.schema or "-",
            one.record.verdict.detail[:60],
        ]
        for one in found
    ]
    show_table(titles, rows)
    counts = Counter(str(one.record.verdict.reason) for one in found)
    for name, count in sorted(counts.items()):
        typer.echo(f"{name}: {count}")


@app.command()
def show(
    topic: Topic,
    place: Annotated[str, typer.Argument(help="partition:offset in quarantine, as listed.")],
    bootstrap: Bootstrap = LOCAL,
    as_json: AsJson = False,
) -> None:
    """One record: why it is here, and its bytes."""
    found = {
        f"{one.place.partition}:{one.place.offset}": one for one in _look(bootstrap, topic, None)
    }
    one = found.get(place)
    if one is None:
        fail(f"there is no record at {place}; `penstock quarantine list {topic}` shows them")
    if as_json:
        show_json(_told(one))
        return
    for name, said in _told(one).items():
        typer.echo(f"{name}: {said}")
    for side, content in ((Side.KEY, one.record.origin.key), (Side.VALUE, one.record.origin.value)):
        typer.echo(f"{side}:" if content is not None else f"{side}: null")
        if content is not None:
            for line in hexdump(annotate(content, one.record.origin.headers, side)):
                typer.echo(f"  {line}")


@app.command("redrive")
def redrive_found(
    topic: Topic,
    reason: OfReason = None,
    reader: Annotated[
        Path | None,
        typer.Option(
            "--reader",
            exists=True,
            dir_okay=False,
            help="The fixed reader's schema: .avsc, .proto or .json.",
        ),
    ] = None,
    to: Annotated[str | None, typer.Option("--to", help="Another topic to send them to.")] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Send them; without this, only say what would be sent.")
    ] = False,
    framed_keys: Annotated[
        bool, typer.Option("--framed-keys", help="Keys are under a contract too.")
    ] = False,
    registry: RegistryUrl = REGISTRY,
    bootstrap: Bootstrap = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Send back what can be read by now. A dry run unless --apply is given."""
    found = _look(bootstrap, topic, reason)
    with Registry(registry, client="penstock quarantine", attempts=1) as schemas:
        reading = Reading(
            schemas,
            value=None if reader is None else Contract(reader, auto_register=False),
            key=None,
            framed_keys=framed_keys,
            as_dicts=True,
            plain_indexes=False,
        )
        try:
            reading.deserializer(topic, Side.VALUE).reader_schema()  # a wrong --reader fails first
            outcome = redrive(
                bootstrap, found, reading, dry_run=not apply, to=to, settings=login(bootstrap)
            )
        except ClientError as failure:
            fail(str(failure))
    if as_json:
        show_json(
            {
                "applied": apply,
                "sent": [_told(one) for one in outcome.sent],
                "unreadable": [{**_told(one), "still": why} for one, why in outcome.unreadable],
            }
        )
    else:
        word = "sent back" if apply else "would be sent back (give --apply to do it)"
        typer.echo(f"{len(outcome.sent)} {word}")
        typer.echo(f"{len(outcome.unreadable)} still cannot be read")
        for one, why in outcome.unreadable[:10]:
            typer.echo(f"  {one.place.partition}:{one.place.offset}  {why}")
    if outcome.unreadable and not outcome.sent:
        raise typer.Exit(REFUSED)


def _look(bootstrap: str, topic: str, reason: Reason | None) -> list[Found]:
    check_reachable(bootstrap)
    try:
        return look(bootstrap, topic, reason, settings=login(bootstrap))
    except ClientError as failure:
        fail(str(failure))


def _told(found: Found) -> dict[str, Any]:
    origin, verdict = found.record
    return {
        "place": f"{found.place.partition}:{found.place.offset}",
        "topic": origin.topic,
        "partition": origin.partition,
        "offset": origin.offset,
        "timestamp": origin.timestamp,
        "reason": str(verdict.reason),
        "detail": verdict.detail,
        "side": str(verdict.side),
        "schema": verdict.schema,
        "subject": verdict.subject,
        "client": verdict.client,
        "at": verdict.at,
        "attempts": verdict.attempts,
        "redriven": found.is_redriven,
    }
