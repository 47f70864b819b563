"""`penstock group …`: list, describe with lag, reset offsets, delete."""

import re
import time
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own exports, undeclared
    AdminClient,
    OffsetSpec,
)

from penstock.cli.connect import (
    LOCAL,
    REFUSED,
    WAIT_S,
    Bootstrap,
    admin,
    fail,
    is_nobody,
    tell,
    telling,
)
from penstock.cli.group_lag import (
    EARLIEST,
    LATEST,
    NOTHING,
    Lag,
    Place,
    ends_of,
    lag_of,
    offsets_of,
)
from penstock.cli.output import AsJson, show_json, show_table

app = typer.Typer(help="List, describe, reset and delete groups.", no_args_is_help=True)

GroupName = Annotated[str, typer.Argument(metavar="GROUP")]
_SPANS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DIGITS_MAX: Final = 15  # beyond is no time that a record can have
_SPAN: Final = re.compile(r"(\d+)([smhd])")


@app.command("list")
def list_groups(bootstrap: Bootstrap = LOCAL, as_json: AsJson = False) -> None:
    """Show the groups with their state and protocol."""
    client = admin(bootstrap)
    with telling(bootstrap):
        listed = client.list_consumer_groups(request_timeout=WAIT_S).result(WAIT_S)
    if listed.errors:
        tell(listed.errors[0], bootstrap)
    rows = sorted(
        (
            {
                "group": group.group_id,
                "state": _word(group.state),
                "type": _word(group.type),
                "simple": group.is_simple_consumer_group,
            }
            for group in listed.valid
        ),
        key=lambda row: str(row["group"]),
    )
    if as_json:
        show_json(rows)
    elif rows:
        cells = [[str(row["group"]), str(row["state"]), str(row["type"])] for row in rows]
        show_table(["GROUP", "STATE", "TYPE"], cells)
    else:
        typer.echo("There are no groups: they appear when consumers join or commit.")


def _word(enumerated: Any) -> str:
    return "unknown" if enumerated is None else str(enumerated.name).lower().replace("_", " ")


@app.command()
def describe(group: GroupName, bootstrap: Bootstrap = LOCAL, as_json: AsJson = False) -> None:
    """Show members and, per partition, how far the group is behind in records and seconds."""
    client = admin(bootstrap)
    with telling(bootstrap):
        described = client.describe_consumer_groups([group], request_timeout=WAIT_S)[group]
        found = described.result(WAIT_S)
        if _word(found.state) == "dead":
            fail(f"there is no group {group!r}. `penstock group list` shows what there is.")
        owners = _owners(found)
        committed = _committed(client, group)
        places = dict.fromkeys([*owners, *_siblings(client, committed)], NOTHING) | committed
        lags = lag_of(bootstrap, places, ends_of(client, list(places)))
    rows = [{**lag._asdict(), "member": owners.get((lag.topic, lag.partition))} for lag in lags]
    members = [
        {
            "member": member.member_id,
            "client": member.client_id,
            "host": member.host,
            "instance": member.group_instance_id,
            "partitions": len(member.assignment.topic_partitions) if member.assignment else 0,
        }
        for member in found.members
    ]
    if as_json:
        show_json(
            {
                "group": group,
                "state": _word(found.state),
                "type": _word(found.type),
                "assignor": found.partition_assignor,
                "members": members,
                "partitions": rows,
            }
        )
        return
    typer.echo(f"{group}: {_word(found.state)}, {len(members)} members")
    if lags:
        typer.echo("")
        _show_lags(lags, owners)


def _siblings(client: AdminClient, committed: dict[Place, int]) -> list[Place]:
    """Every partition of the topics the group has committed in: some may have no commit yet."""
    names = {topic for topic, _ in committed}
    known = client.list_topics(timeout=WAIT_S).topics if names else {}
    return [(name, index) for name in names & known.keys() for index in known[name].partitions]


def _show_lags(lags: list[Lag], owners: dict[Place, str]) -> None:
    titles = ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "SECONDS", "MEMBER"]
    show_table(
        titles,
        [
            ["-" if cell is None else str(cell) for cell in lag]
            + [owners.get((lag.topic, lag.partition), "-")]
            for lag in lags
        ],
    )
    total = sum(lag.records or 0 for lag in lags)
    oldest = max((lag.seconds or 0.0 for lag in lags), default=0.0)
    typer.echo(f"\nbehind by {total} records; the oldest has waited {oldest} s")
    unknown = sum(lag.records is None for lag in lags)
    if unknown:
        typer.echo(f"{unknown} partitions without a commit are not counted")


def _owners(found: Any) -> dict[Place, str]:
    return {
        (where.topic, where.partition): member.client_id or member.member_id
        for member in found.members
        if member.assignment is not None
        for where in member.assignment.topic_partitions
    }


def _committed(client: AdminClient, group: str) -> dict[Place, int]:
    asked = client.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group)], request_timeout=WAIT_S
    )
    found = asked[group].result(WAIT_S).topic_partitions
    return {(where.topic, where.partition): where.offset for where in found}


@app.command()
def reset(
    group: GroupName,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="NAME or NAME:0,1; default: all.")
    ] = None,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="To the first record there is.")
    ] = False,
    to_latest: Annotated[
        bool, typer.Option("--to-latest", help="To the end: only what comes from now.")
    ] = False,
    to_offset: Annotated[int | None, typer.Option(min=0, help="To this offset.")] = None,
    to_time: Annotated[
        str | None,
        typer.Option(help="To the first record from then: 2026-01-31T12:00 or ms."),
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option(help="Back from now by 90s, 15m, 1h or 7d.")
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; else only show it.")] = False,
    bootstrap: Bootstrap = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Move a group that nobody is in. Shows what would change unless told to --execute."""
    spec = _target(to_earliest, to_latest, to_offset, to_time, by_duration)
    client = admin(bootstrap)
    with telling(bootstrap):
        committed = _committed(client, group)
        places = _places(client, topic, committed)
        if not places:
            fail(f"{group!r} has committed nothing: name what to reset with --topic.")
        targets = _resolve(client, places, spec)
        if execute:
            _move(client, group, targets)
    rows = [
        {
            "topic": place[0],
            "partition": place[1],
            "from": committed.get(place),
            "to": targets[place],
        }
        for place in sorted(targets)
    ]
    if as_json:
        show_json({"group": group, "executed": execute, "partitions": rows})
        return
    cells = [["-" if value is None else str(value) for value in row.values()] for row in rows]
    show_table(["TOPIC", "PARTITION", "FROM", "TO"], cells)
    if not execute:
        typer.echo("\nNothing was changed. Add --execute to do it.")


def _target(
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_time: str | None,
    by_duration: str | None,
) -> OffsetSpec | int:
    chosen: list[OffsetSpec | int] = []
    if to_earliest:
        chosen.append(EARLIEST)
    if to_latest:
        chosen.append(LATEST)
    if to_offset is not None:
        chosen.append(to_offset)
    if to_time is not None:
        chosen.append(OffsetSpec.for_timestamp(read_time_ms(to_time)))
    if by_duration is not None:
        then = time.time() - read_span_s(by_duration)
        chosen.append(OffsetSpec.for_timestamp(max(int(then * 1000), 0)))
    if len(chosen) != 1:
        raise typer.BadParameter(
            "say where to: one of --to-earliest, --to-latest, --to-offset, --to-time, --by-duration"
        )
    return chosen[0]


def read_time_ms(text: str) -> int:
    """Milliseconds since 1970, or a date and time; without a zone it is local."""
    if text.isdecimal() and len(text) <= _DIGITS_MAX:
        return int(text)
    try:
        return max(int(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000), 0)
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{text!r} is neither milliseconds nor a time") from None


def read_span_s(text: str) -> int:
    """90s, 15m, 1h, 7d, or several in a row."""
    parts = _SPAN.findall(text)
    longest = max((len(number) for number, _ in parts), default=0)
    whole = "".join(number + unit for number, unit in parts) == text
    if not parts or not whole or longest > _DIGITS_MAX:
        raise typer.BadParameter(f"{text!r} is not a duration such as 90s, 15m, 1h or 7d")
    return sum(int(number) * _SPANS_S[unit] for number, unit in parts)


def _places(
    client: AdminClient, topics: list[str] | None, committed: dict[Place, int]
) -> list[Place]:
    if not topics:
        return list(committed)
    known = client.list_topics(timeout=WAIT_S).topics
    places: list[Place] = []
    for named in topics:
        name, colon, parts = named.partition(":")
        if name not in known:
            fail(f"there is no topic {name!r}. `penstock topic list` shows what there is.")
        there = sorted(known[name].partitions)
        wanted = _indexes(named, parts) if colon else there
        missing = sorted(set(wanted) - set(there))
        if missing:
            fail(f"{name} has no partition {missing[0]}; it has {len(there)}.")
        places += [(name, index) for index in wanted]
    return places


def _indexes(named: str, parts: str) -> list[int]:
    """Those after the colon: what is no number must not come to mean all of them."""
    try:
        return [int(part) for part in parts.split(",")]
    except ValueError:
        raise typer.BadParameter(f"--topic {named!r} is not NAME or NAME:0,1") from None


def _resolve(client: AdminClient, places: list[Place], spec: OffsetSpec | int) -> dict[Place, int]:
    """Where each partition goes, within what it holds."""
    starts = offsets_of(client, dict.fromkeys(places, EARLIEST))
    ends = ends_of(client, places)
    if isinstance(spec, int):
        return {place: min(max(spec, starts[place]), ends[place]) for place in starts}
    found = offsets_of(client, dict.fromkeys(places, spec))
    # No record is that young: the end, so that nothing old is read again.
    return {place: ends[place] if found[place] < 0 else found[place] for place in found}


def _move(client: AdminClient, group: str, targets: dict[Place, int]) -> None:
    wanted = [TopicPartition(*place, offset) for place, offset in targets.items()]
    asked = client.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group, wanted)], request_timeout=WAIT_S
    )
    try:
        moved = asked[group].result(WAIT_S).topic_partitions
    except KafkaException as failure:
        if failure.args[0].name() == "UNKNOWN_MEMBER_ID":
            fail(f"{group!r} has members: stop its consumers first, they would overwrite it.")
        raise
    refused = [where for where in moved if where.error is not None]
    if refused and refused[0].error.name() == "UNKNOWN_MEMBER_ID":
        fail(f"{group!r} has members: stop its consumers first, they would overwrite it.")
    if refused:
        fail(f"{refused[0].topic}-{refused[0].partition}: {refused[0].error.str()}")


@app.command()
def delete(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP")],
    bootstrap: Bootstrap = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Forget groups that nobody is in, with their offsets."""
    client = admin(bootstrap)  # its futures die with it
    asked = client.delete_consumer_groups(groups, request_timeout=WAIT_S)
    outcome: dict[str, str | None] = {}
    with telling(bootstrap):
        for name, future in asked.items():
            try:
                future.result(WAIT_S)
                outcome[name] = None
            except KafkaException as failure:
                if is_nobody(failure.args[0]):
                    raise
                outcome[name] = failure.args[0].str()
    if as_json:
        show_json([{"group": name, "error": error} for name, error in outcome.items()])
    for name, error in outcome.items():
        if not as_json:
            typer.echo(f"deleted {name}" if error is None else f"{name}: {error}", err=bool(error))
    if any(outcome.values()):
        raise typer.Exit(REFUSED)
