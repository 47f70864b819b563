"""A group coordinator for case files: steps in words, replies in words.

a joins g                      replies are shown when they come, also those to earlier steps
a syncs g a=t-0 b=t-1          the leader's assignment
wait 3000
restart                        the state is rebuilt from the log
story g                        what an operator can see of it later
"""

from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

import pytest

from penstock.coordination.groups import GroupMachine, GroupSettings, TopicCatalogue, TopicInfo
from penstock.coordination.groups.commands import (
    Command,
    CommitOffsets,
    CommitReply,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DeleteGroup,
    DeleteOffsets,
    DropTopics,
    FetchOffsets,
    FetchOffsetsReply,
    Heartbeat,
    Join,
    JoinReply,
    Leave,
    LeaveReply,
    ListGroups,
    ListReply,
    OffsetToCommit,
    Sync,
    SyncReply,
)
from penstock.coordination.groups.events import Event
from penstock.coordination.groups.state import GroupsState
from penstock.coordination.groups.subscriptions import (
    read_embedded_assignment,
    write_embedded_assignment,
)
from penstock.errors import Refused
from penstock.machine import CallerId, Deferred, Runner, TransactionMark
from penstock.model import Millis, Moment, ProducerEpoch, ProducerId
from tests.support.memory_journal import MemoryJournal
from tests.support.settings import default_settings

Say = Callable[[str], str]


class Scenario:
    """One coordinator, and clients by name."""

    def __init__(self, settings: GroupSettings) -> None:
        self.machine = GroupMachine(settings)
        self.journal = MemoryJournal()
        self.markers: dict[int, Event] = {}  # what was observed before which record
        self.now = Millis(1_000_000)  # by the steady clock
        self.wall_ahead_ms = 1_000_000_000
        self.lines: list[str] = []
        self.ids: dict[str, str] = {}  # the last member id of each client
        self.generations: dict[str, int] = {}
        self.assigned: dict[str, dict[UUID, tuple[int, ...]]] = {}
        self.owned: dict[str, dict[UUID, tuple[int, ...]]] = {}
        self.members_named = 0
        self.topics: dict[str, TopicInfo] = {}
        self.topics_version = 1
        self.runner = self._runner()
        self.runner.tick(self.moment)

    def _runner(self) -> Runner[GroupsState, Command, Event]:
        runner = Runner(self.machine)
        for index, (record, mark) in enumerate(self.journal.records):
            if index in self.markers:
                runner.observe(self.markers[index])
            runner.replay((record,), mark)
        if self.journal.end_offset in self.markers:
            runner.observe(self.markers[self.journal.end_offset])
        runner.start(self.journal)
        return runner

    @property
    def moment(self) -> Moment:
        return Moment(self.now, Millis(self.now + self.wall_ahead_ms))

    @property
    def state(self) -> GroupsState:
        return self.runner.state

    def step(self, line: str) -> str:
        """Do one step; a line for each reply that came, and the number of records written."""
        self.lines = []
        logged = self.journal.end_offset
        who, verb, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        group = next((word for word in words if "=" not in word), "")
        if who in ("wait", "clock", "restart", "topics", "drop", "list", "end", "story"):
            getattr(self, f"step_{who}")(verb, options)
        else:
            getattr(self, f"step_{verb.replace('-', '_')}")(who, group, options)
        self.machine.validate(self.state)
        written = self.journal.end_offset - logged
        return "\n".join([*self.lines, *([f"logged {written}"] if written else [])]) or "nothing"

    # The clock and the log.

    def step_wait(self, span: str, options: dict[str, str]) -> None:
        """With heartbeating=a/g that member of that group sends heartbeats all the time."""
        until = Millis(self.now + int(span))
        if "heartbeating" in options:
            who, group = options["heartbeating"].split("/")
            while self.now < until:
                self.step_heartbeats(who, group, {})
                self._pass(Millis(min(self.now + 1_000_000, until)))
            self.lines = []
        self._pass(until)

    def step_clock(self, span: str, options: dict[str, str]) -> None:
        """The time of day is set forward, or back."""
        self.wall_ahead_ms += int(span)

    def _pass(self, until: Millis) -> None:
        while (wake_at := self.runner.wake_at()) is not None and wake_at <= until:
            self.now = Millis(max(self.now, wake_at))
            self.runner.tick(self.moment)
        self.now = until

    def step_restart(self, word: str, options: dict[str, str]) -> None:
        self.runner = self._runner()
        self.runner.tick(self.moment)

    def step_topics(self, word: str, options: dict[str, str]) -> None:
        self.topics_version += 1
        self.topics = {
            name: TopicInfo(UUID(int=int.from_bytes(name.encode(), "big")), int(count))
            for name, count in options.items()
        }

    def step_drop(self, topic: str, options: dict[str, str]) -> None:
        self._submit("admin", lambda caller: DropTopics(caller, frozenset((topic,))))

    def step_list(self, word: str, options: dict[str, str]) -> None:
        self._submit("admin", ListGroups)

    def step_end(self, producer: str, options: dict[str, str]) -> None:
        commit = options["with"] == "commit"
        marker = self.machine.on_marker(ProducerId(int(producer)), is_commit=commit)
        assert self.journal.end_offset not in self.markers
        self.markers[self.journal.end_offset] = marker
        self.runner.observe(marker)

    def step_story(self, group: str, options: dict[str, str]) -> None:
        self.lines += [text for _, text in self.runner.story.of(group)]

    def catalogue(self) -> TopicCatalogue:
        names = {topic.topic_id: name for name, topic in self.topics.items()}
        return TopicCatalogue(self.topics_version, self.topics, names)

    def _submit(self, who: str, command: Callable[[CallerId], Command]) -> None:
        reply = self.runner.submit(command, self.moment)
        if isinstance(reply, Deferred):
            reply.listen(partial(self._on_reply, who))
        else:
            self._on_reply(who, reply)

    # Classic members.

    def step_joins(self, who: str, group: str, options: dict[str, str]) -> None:
        self.members_named += 1
        new_member_id = f"{who}-{self.members_named}"
        protocols = options.get("protocols", "range").split(",")
        metadata = _subscription(
            options.get("topics", "t").split(","),
            _partitions(options.get("owned", "")),
            options.get("note", ""),
        )
        self._submit(
            who,
            lambda caller: Join(
                caller,
                group,
                options.get("as", self.ids.get(who, "")),
                options.get("static"),
                new_member_id,
                f"client-{who}",
                "/127.0.0.1",
                int(options.get("session", 10_000)),
                int(options.get("rebalance", 60_000)),
                options.get("type", "consumer"),
                tuple((name, metadata) for name in protocols),
                "old" not in options,
                "skip" in options,
                self.catalogue(),
            ),
        )

    def step_syncs(self, who: str, group: str, options: dict[str, str]) -> None:
        assignments = {
            self.ids[name]: _assignment(text)
            for name, text in options.items()
            if name not in ("generation", "static", "as", "protocol")
        }
        self._submit(
            who,
            lambda caller: Sync(
                caller,
                group,
                self._generation(who, options),
                options.get("as", self.ids.get(who, "")),
                options.get("static"),
                "consumer",
                options.get("protocol"),
                assignments,
                self.catalogue(),
            ),
        )

    def step_heartbeats(self, who: str, group: str, options: dict[str, str]) -> None:
        self._submit(
            who,
            lambda caller: Heartbeat(
                caller,
                group,
                self._generation(who, options),
                options.get("as", self.ids.get(who, "")),
                options.get("static"),
            ),
        )

    def step_leaves(self, who: str, group: str, options: dict[str, str]) -> None:
        member_id = options.get("as", "" if "static" in options else self.ids.get(who, ""))
        leaving = ((member_id, options.get("static")),)
        self._submit(who, lambda caller: Leave(caller, group, leaving))

    def _generation(self, who: str, options: dict[str, str]) -> int:
        return int(options.get("generation", self.generations.get(who, -1)))

    # Members of the consumer protocol.

    def step_consumes(self, who: str, group: str, options: dict[str, str]) -> None:
        """A heartbeat; with topics or regex in full."""
        epoch = int(options.get("epoch", self.generations.get(who, 0)))
        is_full = epoch == 0 or "topics" in options or "regex" in options
        owned = self.owned.get(who, {}) if epoch > 0 else {}
        names = tuple(options["topics"].split(",")) if "topics" in options else None
        self._submit(
            who,
            lambda caller: ConsumerHeartbeat(
                caller,
                group,
                who,
                epoch,
                options.get("static"),
                None,
                int(options.get("rebalance", 60_000)) if is_full else -1,
                names,
                options.get("regex"),
                options.get("assignor"),
                None if "silent" in options else owned,
                f"client-{who}",
                "/127.0.0.1",
                self.catalogue(),
            ),
        )

    def step_revokes(self, who: str, group: str, options: dict[str, str]) -> None:
        """The member gives up what is not in its last assignment: until then it owns that too."""
        self.owned[who] = dict(self.assigned[who])

    # Offsets.

    def step_commits(self, who: str, group: str, options: dict[str, str]) -> None:
        topic, partition = options["at"].split("-")
        offset, _, metadata = options["offset"].partition("/")
        mark = None
        if "producer" in options:
            mark = TransactionMark(ProducerId(int(options["producer"])), ProducerEpoch(0))
        topic_id = self.topics[topic].topic_id if topic in self.topics else UUID(int=0)
        entry = OffsetToCommit(topic, int(partition), int(offset), -1, metadata, topic_id)
        self._submit(
            who,
            lambda caller: CommitOffsets(
                caller,
                group,
                self._generation(who, options),
                options.get("as", self.ids.get(who, "")),
                options.get("static"),
                (entry,),
                mark,
                is_monotonic="monotonic" in options,
            ),
        )

    def step_fetches(self, who: str, group: str, options: dict[str, str]) -> None:
        stable = options.get("stable") == "yes"
        self._submit(who, lambda caller: FetchOffsets(caller, group, None, stable))

    def step_deletes_offset(self, who: str, group: str, options: dict[str, str]) -> None:
        topic, partition = options["at"].split("-")
        partitions = ((topic, int(partition)),)
        self._submit(who, lambda caller: DeleteOffsets(caller, group, partitions))

    def step_deletes(self, who: str, group: str, options: dict[str, str]) -> None:
        self._submit(who, lambda caller: DeleteGroup(caller, group))

    # Replies.

    def _on_reply(self, who: str, body: object) -> None:
        self.lines.append(f"{who}: {self._in_words(who, body)}")

    def _in_words(self, who: str, body: object) -> str:
        match body:
            case Refused():
                return body.code.name
            case JoinReply():
                return self._join_reply(who, body)
            case SyncReply():
                return f"assigned {_assigned(body.assignment) or 'nothing'}"
            case LeaveReply():
                return ", ".join(code.name for _, _, code in body.members)
            case CommitReply():
                return ", ".join(code.name for code in body.codes)
            case FetchOffsetsReply():
                return _fetched(body)
            case ListReply():
                rows = sorted(body.groups)
                listed = [f"{row.group_id} {row.state} {row.group_type}" for row in rows]
                return ", ".join(listed) or "no groups"
            case ConsumerHeartbeatReply():
                return self._heartbeat_reply(who, body)
            case _:
                return "ok"

    def _join_reply(self, who: str, body: JoinReply) -> str:
        self.ids[who] = body.member_id
        if body.generation < 0:
            return f"{body.code.name} {body.member_id}"
        self.generations[who] = body.generation
        text = f"joined as {body.member_id} generation={body.generation} leader={body.leader}"
        if body.members:
            text += " members=" + ",".join(member.member_id for member in body.members)
        return text + (" skip" if body.skip_assignment else "") + f" protocol={body.protocol}"

    def _heartbeat_reply(self, who: str, body: ConsumerHeartbeatReply) -> str:
        self.ids[who] = who
        self.generations[who] = body.member_epoch
        text = f"epoch={body.member_epoch}"
        if body.heartbeat_interval_ms not in (0, 5_000):  # none, or the group's setting
            text += f" again in {body.heartbeat_interval_ms} ms"
        if body.assignment is None:
            return text
        self.assigned[who] = dict(body.assignment)
        owned = self.owned.setdefault(who, {})
        for topic_id, partitions in body.assignment.items():
            owned[topic_id] = tuple(sorted({*owned.get(topic_id, ()), *partitions}))
        names = self.catalogue().names
        shown = sorted(
            f"{names[topic_id]}-{partition}"
            for topic_id, partitions in body.assignment.items()
            for partition in partitions
        )
        return f"{text} has {','.join(shown) or 'nothing'}"


def _partitions(text: str) -> dict[str, list[int]]:
    """Partitions by topic, from words like `t-0,t-1`."""
    partitions: dict[str, list[int]] = {}
    for word in filter(None, text.split(",")):
        topic, partition = word.split("-")
        partitions.setdefault(topic, []).append(int(partition))
    return partitions


def _subscription(topics: Sequence[str], owned: dict[str, list[int]], note: str) -> bytes:
    packed = b"\x00\x01" + len(topics).to_bytes(4, "big")
    for topic in topics:
        packed += len(topic).to_bytes(2, "big") + topic.encode()
    packed += len(note).to_bytes(4, "big") + note.encode()
    return packed + write_embedded_assignment(owned, 1)[2:-4]


def _assignment(text: str) -> bytes:
    """A consumer's assignment if it names partitions; else any bytes, as other clients use."""
    return write_embedded_assignment(_partitions(text), 1) if "-" in text else text.encode()


def _assigned(packed: bytes) -> str:
    if packed[:2] != b"\x00\x01":
        return packed.decode()
    assignment = read_embedded_assignment(packed)
    return ",".join(f"{topic}-{p}" for topic, partitions in assignment.items() for p in partitions)


def _fetched(body: FetchOffsetsReply) -> str:
    rows = [
        f"{row.topic}-{row.partition}={row.offset}"
        + (f" {row.code.name}" if row.code else "")
        + (f"/{row.metadata}" if row.metadata else "")
        for row in sorted(body.offsets)
    ]
    return ", ".join(rows) or "nothing committed"


@pytest.fixture
def scenario() -> Scenario:
    return Scenario(default_settings(GroupSettings))
