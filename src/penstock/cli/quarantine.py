"""`penstock quarantine`: what could not be read, why, and sending it back once it can be."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.connect import (
    LOCAL,
    REFUSED,
    Bootstrap,
    check_reachable,
    fail,
    login,
)
from penstock.cli.output import AsJson, show_json, show_table
from penstock.cli.registry_connect import LOCAL_REGISTRY, RegistryUrl
from penstock.client.event import Reading
from penstock.client.quarantine import Quarantined
from penstock.client.redrive import Found, Redriven, Returning, Selection, look, redrive
from penstock.client.registry import Registry
from penstock.serde.annotate import annotate, hexdump
from penstock.serde.contract import Contract
from penstock.serde.errors import ClientError, Reason
from penstock.serde.frame import Side

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
    group: Annotated[
        str | None, typer.Option("--group", help="Only events that this group put aside.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", help="Another topic to send them to, such as one that only --group reads."
        ),
    ] = None,
    include_superseded: Annotated[
        bool,
        typer.Option(
            "--include-superseded",
            help="Also send events whose key has a newer value in the topic.",
        ),
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Send them; without this, only say what would be sent.")
    ] = False,
    framed_keys: Annotated[
        bool, typer.Option("--framed-keys", help="Keys are under a contract too.")
    ] = False,
    registry: RegistryUrl = LOCAL_REGISTRY,
    bootstrap: Bootstrap = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Send back what can be read by now, each event once. A dry run unless --apply is given."""
    check_reachable(bootstrap)
    selection = Selection(reason, group, to, include_superseded)
    with Registry(registry, client="penstock quarantine", attempts=1) as schemas:
        reading = _reading(schemas, reader, framed_keys=framed_keys)
        try:
            reading.deserializer(topic, Side.VALUE).reader_schema()  # a wrong --reader fails first
            outcome = redrive(
                bootstrap, topic, reading, selection, dry_run=not apply, settings=login(bootstrap)
            )
        except ClientError as failure:
            fail(str(failure))
    if as_json:
        show_json(_outcome_document(outcome, is_applied=apply))
    else:
        _show_outcome(outcome, is_applied=apply)
        if outcome.sent and to is None and group is not None:
            typer.echo(f"every group that reads {topic} gets them; --to sends them elsewhere")
    if outcome.unreadable and not outcome.sent:
        raise typer.Exit(REFUSED)


def _reading(schemas: Registry, reader: Path | None, *, framed_keys: bool) -> Reading:
    return Reading(
        schemas,
        value=None if reader is None else Contract(reader, auto_register=False),
        key=None,
        framed_keys=framed_keys,
        as_dicts=True,
        plain_indexes=False,
    )


def _outcome_document(outcome: Redriven, *, is_applied: bool) -> dict[str, Any]:
    return {
        "applied": is_applied,
        "sent": [_returning(one) for one in outcome.sent],
        "superseded": [_returning(one) for one in outcome.superseded],
        "unreadable": [{**_returning(one), "still": why} for one, why in outcome.unreadable],
    }


def _show_outcome(outcome: Redriven, *, is_applied: bool) -> None:
    word = "sent back" if is_applied else "would be sent back (give --apply to do it)"
    typer.echo(f"{len(outcome.sent)} {word}")
    if outcome.superseded:
        typer.echo(
            f"{len(outcome.superseded)} left out: the topic has a newer value of the key "
            "(--include-superseded sends them too)"
        )
    typer.echo(f"{len(outcome.unreadable)} still cannot be read")
    for one, why in outcome.unreadable[:10]:
        typer.echo(f"  {one.places[0].partition}:{one.places[0].offset}  {why}")


def _look(bootstrap: str, topic: str, reason: Reason | None) -> list[Found]:
    check_reachable(bootstrap)
    try:
        return look(bootstrap, topic, reason, settings=login(bootstrap))
    except ClientError as failure:
        fail(str(failure))


def _told(found: Found) -> dict[str, Any]:
    place = f"{found.place.partition}:{found.place.offset}"
    return {"place": place, **_described(found.record), "redriven": found.is_redriven}


def _returning(event: Returning) -> dict[str, Any]:
    places = [f"{one.partition}:{one.offset}" for one in event.places]
    return {"place": places[0], "places": places, **_described(event.record)}


def _described(record: Quarantined) -> dict[str, Any]:
    origin, verdict = record
    return {
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
    }
