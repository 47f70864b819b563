"""`penstock quarantine …`: list unreadable events, show one, send back those that can be read."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from penstock.cli.connect import check_reachable, login
from penstock.cli.error_output import REFUSED, fail
from penstock.cli.options import (
    LOCAL_BOOTSTRAP,
    LOCAL_REGISTRY,
    AsJson,
    Bootstrap,
    RegistryUrl,
)
from penstock.cli.output import show_json, show_table
from penstock.client.event import RecordReader
from penstock.client.quarantine import QuarantinedRecord
from penstock.client.quarantined_events import QuarantinedEvent
from penstock.client.redrive import (
    RedrivableEvent,
    RedriveResult,
    RedriveSelection,
    list_quarantined,
    redrive,
)
from penstock.client.registry import Registry
from penstock.serde.annotate import annotate, hexdump
from penstock.serde.contract import Contract
from penstock.serde.errors import ClientError, Reason
from penstock.serde.frame import Side

app: Final = typer.Typer(no_args_is_help=True, help="List, show and redrive unreadable events.")

SHOWN_MAX = 10

Topic = Annotated[str, typer.Argument(help="The original topic, without .quarantine.")]
OnlyReason = Annotated[Reason | None, typer.Option("--reason", help="Only events of this reason.")]


@app.command("list")
def list_events(
    topic: Topic,
    reason: OnlyReason = None,
    include_redriven: Annotated[
        bool, typer.Option("--all", help="Include events that were sent back.")
    ] = False,
    bootstrap: Bootstrap = LOCAL_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List the events in quarantine, oldest first."""
    events = [
        event
        for event in _events(bootstrap, topic, reason)
        if include_redriven or not event.is_redriven
    ]
    if as_json:
        show_json([_document(event) for event in events])
        return
    titles = ["POSITION", "ORIGIN", "REASON", "SCHEMA", "DETAIL"]
    rows = [
        [
            _position(event.position),
            _position(event.record.origin),
            str(event.record.failure.reason),
            event.record.failure.schema or "-",
            event.record.failure.detail[:60],
        ]
        for event in events
    ]
    show_table(titles, rows)
    counts = Counter(str(event.record.failure.reason) for event in events)
    for name, count in sorted(counts.items()):
        typer.echo(f"{name}: {count}")


@app.command()
def show(
    topic: Topic,
    position: Annotated[str, typer.Argument(help="partition:offset in quarantine, as listed.")],
    bootstrap: Bootstrap = LOCAL_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show one event: why it is in quarantine, and its bytes."""
    events = {_position(event.position): event for event in _events(bootstrap, topic, None)}
    event = events.get(position)
    if event is None:
        fail(f"no event at {position}; `penstock quarantine list {topic}` lists them")
    document = _document(event)
    if as_json:
        show_json(document)
        return
    for name, value in document.items():
        typer.echo(f"{name}: {value}")
    origin = event.record.origin
    for side, content in ((Side.KEY, origin.key), (Side.VALUE, origin.value)):
        typer.echo(f"{side}:" if content is not None else f"{side}: null")
        if content is not None:
            for line in hexdump(annotate(content, origin.headers, side)):
                typer.echo(f"  {line}")


@app.command("redrive")
def redrive_events(
    topic: Topic,
    reason: OnlyReason = None,
    reader: Annotated[
        Path | None,
        typer.Option(
            "--reader",
            exists=True,
            dir_okay=False,
            help="Schema of the fixed reader: .avsc, .proto or .json.",
        ),
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", help="Only events that this group quarantined.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", help="Send them to another topic, such as one that --group reads."),
    ] = None,
    include_superseded: Annotated[
        bool,
        typer.Option(
            "--include-superseded",
            help="Include events whose key has a newer value in the topic.",
        ),
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Send the events; without it nothing is sent.")
    ] = False,
    framed_keys: Annotated[
        bool, typer.Option("--framed-keys", help="Keys are under a contract too.")
    ] = False,
    registry: RegistryUrl = LOCAL_REGISTRY,
    bootstrap: Bootstrap = LOCAL_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Send back events that can be read now, each once. A dry run unless --apply is given."""
    check_reachable(bootstrap)
    selection = RedriveSelection(reason, group, to, include_superseded)
    with Registry(registry, client="penstock quarantine", attempts=1) as schemas:
        events = _reader(schemas, reader, framed_keys=framed_keys)
        try:
            events.deserializer(topic, Side.VALUE).reader_schema()  # reports an invalid --reader
            result = redrive(
                bootstrap, topic, events, selection, dry_run=not apply, settings=login(bootstrap)
            )
        except ClientError as failure:
            fail(str(failure))
    if as_json:
        show_json(_result_document(result, is_applied=apply))
    else:
        _show_result(result, is_applied=apply)
        if result.sent and to is None and group is not None:
            typer.echo(f"all groups that read {topic} get them; --to sends them to another topic")
    if result.unreadable and not result.sent:
        raise typer.Exit(REFUSED)


def _reader(schemas: Registry, schema: Path | None, *, framed_keys: bool) -> RecordReader:
    return RecordReader(
        schemas,
        value=None if schema is None else Contract(schema, auto_register=False),
        key=None,
        framed_keys=framed_keys,
        as_dicts=True,
        plain_indexes=False,
    )


def _result_document(result: RedriveResult, *, is_applied: bool) -> dict[str, Any]:
    return {
        "applied": is_applied,
        "sent": [_redrivable(event) for event in result.sent],
        "superseded": [_redrivable(event) for event in result.superseded],
        "unreadable": [
            {**_redrivable(event), "error": error} for event, error in result.unreadable
        ],
    }


def _show_result(result: RedriveResult, *, is_applied: bool) -> None:
    verb = "sent back" if is_applied else "would be sent back (pass --apply to send them)"
    typer.echo(f"{len(result.sent)} {verb}")
    if result.superseded:
        typer.echo(
            f"{len(result.superseded)} left out: the topic has a newer value of the key "
            "(--include-superseded sends them too)"
        )
    typer.echo(f"{len(result.unreadable)} still unreadable")
    for event, error in result.unreadable[:SHOWN_MAX]:
        typer.echo(f"  {_position(event.positions[0])}  {error}")


def _events(bootstrap: str, topic: str, reason: Reason | None) -> list[QuarantinedEvent]:
    check_reachable(bootstrap)
    try:
        return list_quarantined(bootstrap, topic, reason, settings=login(bootstrap))
    except ClientError as failure:
        fail(str(failure))


def _position(record: Any) -> str:
    return f"{record.partition}:{record.offset}"


def _document(event: QuarantinedEvent) -> dict[str, Any]:
    position = _position(event.position)
    return {"position": position, **_record(event.record), "redriven": event.is_redriven}


def _redrivable(event: RedrivableEvent) -> dict[str, Any]:
    positions = [_position(position) for position in event.positions]
    return {"position": positions[0], "positions": positions, **_record(event.record)}


def _record(record: QuarantinedRecord) -> dict[str, Any]:
    origin, failure = record
    return {
        "topic": origin.topic,
        "partition": origin.partition,
        "offset": origin.offset,
        "timestamp": origin.timestamp,
        "reason": str(failure.reason),
        "detail": failure.detail,
        "side": str(failure.side),
        "schema": failure.schema,
        "subject": failure.subject,
        "client": failure.client,
        "at": failure.at,
        "attempts": failure.attempts,
    }
