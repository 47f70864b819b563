"""`penstock group …`: list, describe with lag, reset offsets, delete."""

import re
import time
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own exports, undeclared
    AdminClient,
    OffsetSpec,
)

from penstock.cli.connect import (
    WAIT_S,
    admin,
    fail_with,
    is_unreachable,
    kafka_errors,
    no_topic,
)
from penstock.cli.error_output import REFUSED, fail
from penstock.cli.group_lag import (
    EARLIEST,
    LATEST,
    NO_OFFSET,
    Partition,
    PartitionLag,
    ends_of,
    lag_of,
    offsets_of,
)
from penstock.cli.options import LOCAL_BOOTSTRAP, AsJson, Bootstrap
from penstock.cli.output import cell, counted, show_json, show_table

app: Final = typer.Typer(help="List, describe, reset and delete groups.", no_args_is_help=True)

GroupName = Annotated[str, typer.Argument(metavar="GROUP")]
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DIGITS_MAX: Final = 15  # a longer number is no time that a record can have
_DURATION: Final = re.compile(r"(\d+)([smhd])")


@app.command("list")
def list_groups(bootstrap: Bootstrap = LOCAL_BOOTSTRAP, as_json: AsJson = False) -> None:
    """List groups with their state and type."""
    client = admin(bootstrap)
    with kafka_errors(bootstrap):
        response = client.list_consumer_groups(request_timeout=WAIT_S).result(WAIT_S)
    if response.errors:
        fail_with(response.errors[0], bootstrap)
    rows = sorted(
        (
            {
                "group": group.group_id,
                "state": _word(group.state),
                "type": _word(group.type),
                "simple": group.is_simple_consumer_group,
            }
            for group in response.valid
        ),
        key=lambda row: str(row["group"]),
    )
    if as_json:
        show_json(rows)
    elif rows:
        cells = [[str(row["group"]), str(row["state"]), str(row["type"])] for row in rows]
        show_table(["GROUP", "STATE", "TYPE"], cells)
    else:
        typer.echo("No groups. A group exists once a consumer joins it or commits offsets.")


def _word(member: Any) -> str:
    return "unknown" if member is None else str(member.name).lower().replace("_", " ")


@app.command()
def describe(
    group: GroupName, bootstrap: Bootstrap = LOCAL_BOOTSTRAP, as_json: AsJson = False
) -> None:
    """Show the members of a group and its lag per partition, in records and seconds."""
    client = admin(bootstrap)
    with kafka_errors(bootstrap):
        future = client.describe_consumer_groups([group], request_timeout=WAIT_S)[group]
        description = future.result(WAIT_S)
        if _word(description.state) == "dead":
            fail(f"group {group!r} does not exist. List groups with `penstock group list`.")
        owners = _owners(description)
        committed = _committed(client, group)
        partitions = [*owners, *_all_partitions(client, committed)]
        offsets = dict.fromkeys(partitions, NO_OFFSET) | committed
        lags = lag_of(bootstrap, offsets, ends_of(client, list(offsets)))
    rows = [{**lag._asdict(), "member": owners.get((lag.topic, lag.partition))} for lag in lags]
    members = [
        {
            "member": member.member_id,
            "client": member.client_id,
            "host": member.host,
            "instance": member.group_instance_id,
            "partitions": len(member.assignment.topic_partitions) if member.assignment else 0,
        }
        for member in description.members
    ]
    if as_json:
        show_json(
            {
                "group": group,
                "state": _word(description.state),
                "type": _word(description.type),
                "assignor": description.partition_assignor,
                "members": members,
                "partitions": rows,
            }
        )
        return
    typer.echo(f"{group}: {_word(description.state)}, {counted(len(members), 'member')}")
    if lags:
        typer.echo("")
        _show_lags(lags, owners)


def _all_partitions(client: AdminClient, committed: dict[Partition, int]) -> list[Partition]:
    """All partitions of the topics that the group commits to: some may have no commit yet."""
    names = {topic for topic, _ in committed}
    topics = client.list_topics(timeout=WAIT_S).topics if names else {}
    return [(name, index) for name in names & topics.keys() for index in topics[name].partitions]


def _show_lags(lags: list[PartitionLag], owners: dict[Partition, str]) -> None:
    titles = ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "SECONDS", "MEMBER"]
    show_table(
        titles,
        [[*map(cell, lag), owners.get((lag.topic, lag.partition), "-")] for lag in lags],
    )
    total = sum(lag.records or 0 for lag in lags)
    oldest = max((lag.seconds or 0.0 for lag in lags), default=0.0)
    typer.echo(f"\nlag: {counted(total, 'record')}; the oldest is {oldest} s old")
    unknown = sum(lag.records is None for lag in lags)
    if unknown:
        typer.echo(f"not counted, because they have no commit: {counted(unknown, 'partition')}")


def _owners(description: Any) -> dict[Partition, str]:
    return {
        (partition.topic, partition.partition): member.client_id or member.member_id
        for member in description.members
        if member.assignment is not None
        for partition in member.assignment.topic_partitions
    }


def _committed(client: AdminClient, group: str) -> dict[Partition, int]:
    futures = client.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group)], request_timeout=WAIT_S
    )
    offsets = futures[group].result(WAIT_S).topic_partitions
    return {(offset.topic, offset.partition): offset.offset for offset in offsets}


@app.command()
def reset(
    group: GroupName,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", help="NAME or NAME:0,1; default: all committed partitions."),
    ] = None,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="To the first record.")
    ] = False,
    to_latest: Annotated[
        bool, typer.Option("--to-latest", help="To the end, to read new records only.")
    ] = False,
    to_offset: Annotated[int | None, typer.Option(min=0, help="To this offset.")] = None,
    to_time: Annotated[
        str | None,
        typer.Option(help="To the first record at or after 2026-01-31T12:00, or milliseconds."),
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option(help="Back from now by 90s, 15m, 1h or 7d.")
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Reset the offsets; without it they are only shown.")
    ] = False,
    bootstrap: Bootstrap = LOCAL_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Reset the offsets of a group without members. A dry run unless --execute is given."""
    spec = _target(to_earliest, to_latest, to_offset, to_time, by_duration)
    client = admin(bootstrap)
    with kafka_errors(bootstrap):
        committed = _committed(client, group)
        partitions = _selected(client, topic, committed)
        if not partitions:
            fail(f"{group!r} has no committed offsets: choose topics with --topic.")
        targets = _resolve(client, partitions, spec)
        if execute:
            _commit(client, group, targets)
    rows = [
        {
            "topic": partition[0],
            "partition": partition[1],
            "from": committed.get(partition),
            "to": targets[partition],
        }
        for partition in sorted(targets)
    ]
    if as_json:
        show_json({"group": group, "executed": execute, "partitions": rows})
        return
    cells = [[cell(value) for value in row.values()] for row in rows]
    show_table(["TOPIC", "PARTITION", "FROM", "TO"], cells)
    if not execute:
        typer.echo("\nNothing was changed. Pass --execute to reset the offsets.")


def _target(
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_time: str | None,
    by_duration: str | None,
) -> OffsetSpec | int:
    targets: list[OffsetSpec | int] = []
    if to_earliest:
        targets.append(EARLIEST)
    if to_latest:
        targets.append(LATEST)
    if to_offset is not None:
        targets.append(to_offset)
    if to_time is not None:
        targets.append(OffsetSpec.for_timestamp(read_time_ms(to_time)))
    if by_duration is not None:
        start_s = time.time() - read_duration_s(by_duration)
        targets.append(OffsetSpec.for_timestamp(max(int(start_s * 1000), 0)))
    if len(targets) != 1:
        raise typer.BadParameter(
            "pass one of --to-earliest, --to-latest, --to-offset, --to-time, --by-duration"
        )
    return targets[0]


def read_time_ms(text: str) -> int:
    """Milliseconds since 1970, or a date and time; local if it has no zone."""
    if text.isdecimal() and len(text) <= _DIGITS_MAX:
        return int(text)
    try:
        return max(int(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000), 0)
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{text!r} is neither milliseconds nor a time") from None


def read_duration_s(text: str) -> int:
    """90s, 15m, 1h, 7d, or several of them joined."""
    parts = _DURATION.findall(text)
    longest = max((len(number) for number, _ in parts), default=0)
    is_whole = "".join(number + unit for number, unit in parts) == text
    if not parts or not is_whole or longest > _DIGITS_MAX:
        raise typer.BadParameter(f"{text!r} is not a duration such as 90s, 15m, 1h or 7d")
    return sum(int(number) * _UNITS_S[unit] for number, unit in parts)


def _selected(
    client: AdminClient, topics: list[str] | None, committed: dict[Partition, int]
) -> list[Partition]:
    if not topics:
        return list(committed)
    known = client.list_topics(timeout=WAIT_S).topics
    partitions: list[Partition] = []
    for option in topics:
        name, colon, indexes = option.partition(":")
        if name not in known:
            no_topic(name)
        existing = sorted(known[name].partitions)
        selected = _indexes(option, indexes) if colon else existing
        missing = sorted(set(selected) - set(existing))
        if missing:
            fail(f"{name} has no partition {missing[0]}; it has {len(existing)}.")
        partitions += [(name, index) for index in selected]
    return partitions


def _indexes(option: str, indexes: str) -> list[int]:
    """Those after the colon; invalid ones must not select all partitions."""
    try:
        return [int(index) for index in indexes.split(",")]
    except ValueError:
        raise typer.BadParameter(f"--topic {option!r} is not NAME or NAME:0,1") from None


def _resolve(
    client: AdminClient, partitions: list[Partition], spec: OffsetSpec | int
) -> dict[Partition, int]:
    """The new offset of each partition, within its log."""
    starts = offsets_of(client, dict.fromkeys(partitions, EARLIEST))
    ends = ends_of(client, partitions)
    if isinstance(spec, int):
        return {
            partition: min(max(spec, starts[partition]), ends[partition]) for partition in starts
        }
    offsets = offsets_of(client, dict.fromkeys(partitions, spec))
    # Without a record that new: the end, so that nothing old is read again.
    return {
        partition: ends[partition] if offset < 0 else offset
        for partition, offset in offsets.items()
    }


def _commit(client: AdminClient, group: str, targets: dict[Partition, int]) -> None:
    offsets = [TopicPartition(*partition, offset) for partition, offset in targets.items()]
    futures = client.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group, offsets)], request_timeout=WAIT_S
    )
    try:
        results = futures[group].result(WAIT_S).topic_partitions
    except KafkaException as failure:
        if failure.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID:
            _has_members(group)
        raise
    for result in results:
        if result.error is None:
            continue
        if result.error.code() == KafkaError.UNKNOWN_MEMBER_ID:
            _has_members(group)
        fail(f"{result.topic}-{result.partition}: {result.error.str()}")


def _has_members(group: str) -> None:
    fail(f"{group!r} has members: stop its consumers first, they would overwrite the offsets.")


@app.command()
def delete(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP")],
    bootstrap: Bootstrap = LOCAL_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete groups without members, with their offsets."""
    client = admin(bootstrap)  # must outlive its futures
    futures = client.delete_consumer_groups(groups, request_timeout=WAIT_S)
    errors: dict[str, str | None] = {}
    with kafka_errors(bootstrap):
        for name, future in futures.items():
            try:
                future.result(WAIT_S)
                errors[name] = None
            except KafkaException as failure:
                if is_unreachable(failure.args[0]):
                    raise
                errors[name] = failure.args[0].str()
    if as_json:
        show_json([{"group": name, "error": error} for name, error in errors.items()])
    for name, error in errors.items():
        if not as_json:
            typer.echo(f"deleted {name}" if error is None else f"{name}: {error}", err=bool(error))
    if any(errors.values()):
        raise typer.Exit(REFUSED)
