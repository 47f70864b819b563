"""The controller's rules as case files: a line per command in, results and records out."""

import json
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config.resolve import ChangeKind, ConfigChange
from penstock.coordination.controller import ClusterState, ControllerMachine
from penstock.coordination.controller.commands import (
    AllocateProducerIds,
    AlterConfigs,
    AlterPartitions,
    AlterQuotas,
    BrokerHeartbeat,
    Command,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    FenceBroker,
    HeartbeatReply,
    IsrChange,
    NewPartitions,
    NewTopic,
    QuotaChange,
    ReassignPartitions,
    RegisterBroker,
    ReplicaCondition,
    ReplicaReport,
    ReportReplicas,
    ResourceChange,
    StartSessions,
    UnregisterBroker,
)
from penstock.coordination.controller.events import NO_LEADER, ConfigScope, Event, PartitionState
from penstock.coordination.controller.settings import ControllerSettings
from penstock.coordination.controller.snapshot import snapshot_events
from penstock.errors import Refused
from penstock.machine import CallerId, JournalRecord, Outcome, Story
from penstock.model import LeaderEpoch, Millis, Moment, NodeId, Offset, TopicId
from tests.support.settings import default_settings

CASES = sorted((Path(__file__).parent / "cases").glob("*.case"))
CALLER = CallerId(1)


class Scenario:
    """A controller with its log; `step` does one step of a case file."""

    def __init__(self) -> None:
        self.machine = ControllerMachine(
            default_settings(ControllerSettings, node_id=NodeId(1), static={}), {"group.version": 1}
        )
        self.state: ClusterState = self.machine.fresh()
        self.log: list[JournalRecord] = []
        self.last_topic_id = 0
        self.incarnations: dict[int, int] = {}  # processes that were started, by broker
        self.now = Millis(0)
        self.story = Story()

    def step(self, line: str) -> str:
        verb, *words = shlex.split(line)
        if verb in ("replay", "compact"):
            return self.replay(compacted=verb == "compact")
        if verb == "show":
            return self.show()
        if verb == "start":  # a broker registers and is unfenced
            self.step(f"register {' '.join(words)}")
            return self.step(f"heartbeat {words[0]}")
        if verb == "wait":
            self.now = Millis(self.now + int(words[0]))
            return "\n".join(self.tick())
        if verb == "rows":
            rows = self.state.topics[words[0]].partitions
            return "\n".join(_row(index, row) for index, row in enumerate(rows))
        if verb == "story":
            return "\n".join(text for _, text in self.story.of(words[0]))
        return "\n".join(self.submit(getattr(self, f"parse_{verb.replace('-', '_')}")(words)))

    def submit(self, command: Command) -> Iterable[str]:
        try:
            outcome = self.machine.decide(self.state, command, Moment(self.now, Millis(0)))
        except Refused as refusal:
            return [f"refused {refusal}"]
        body = outcome.replies[0].body
        lines = [f"> {_short(each)}" for each in (body if isinstance(body, list) else [body])]
        return lines + self.carry_out(outcome)

    def tick(self) -> Iterable[str]:
        wake_at = self.machine.wake_at(self.state)
        if wake_at is None or wake_at > self.now:
            return []
        return self.carry_out(self.machine.tick(self.state, Moment(self.now, Millis(0))))

    def carry_out(self, outcome: Outcome[Event]) -> list[str]:
        for event in outcome.events:
            self.log.append(self.machine.write_event(event))
            self.machine.apply(self.state, event)
        for note in outcome.notes:
            self.machine.apply(self.state, note)
        self.machine.validate(self.state)
        self.story.add(outcome.story, Millis(0))
        written = self.log[len(self.log) - len(outcome.events) :]
        return [
            f"{key.decode()} = {'deleted' if value is None else value.decode()}"
            for key, value in written
        ]

    def replay(self, *, compacted: bool) -> str:
        """A second machine reads the log, whole or with only the last record of each key."""
        records = self.log
        if compacted:
            last = {record.key: number for number, record in enumerate(records)}
            records = [
                record for number, record in enumerate(records) if last[record.key] == number
            ]
            records = [record for record in records if record.value is not None]
        again = self.machine.fresh()
        for record in records:
            for event in self.machine.read_events(record, None):
                self.machine.apply(again, event)
        self.machine.validate(again)
        return "same" if _picture(again) == _picture(self.state) else "differs"

    def show(self) -> str:
        return json.dumps(_picture(self.state), default=str)

    def new_topic_id(self) -> TopicId:
        self.last_topic_id += 1
        return TopicId(UUID(int=self.last_topic_id))

    def parse_register(self, words: list[str]) -> Command:
        """register <id> [rack=a] [clean=no] [again=yes: the same process] [dir=1]"""
        options = _options(words[1:])
        node = int(words[0])
        known = self.state.brokers.get(NodeId(node))
        is_clean = options.get("clean", "yes") == "yes" and known is not None
        if "again" not in options:
            self.incarnations[node] = self.incarnations.get(node, 0) + 1
        return RegisterBroker(
            CALLER, NodeId(node), UUID(int=self.incarnations[node]), "localhost", 9092,
            options.get("rack"), previous_epoch=known.epoch if known and is_clean else -1,
            new_epoch=len(self.log), new_cluster_id="the-id",
            log_dir=UUID(int=int(options.get("dir", "0"))),
        )  # fmt: skip

    def parse_heartbeat(self, words: list[str]) -> Command:
        """heartbeat <id> [epoch=n] [at=metadata offset] [fence=yes] [stop=yes]"""
        options, node = _options(words[1:]), NodeId(int(words[0]))
        known = self.state.brokers.get(node)
        epoch = int(options.get("epoch", -1 if known is None else known.epoch))
        return BrokerHeartbeat(
            CALLER, node, epoch, Offset(int(options.get("at", len(self.log)))),
            wants_fence="fence" in options, wants_stop="stop" in options,
            end_offset=Offset(len(self.log)),
        )  # fmt: skip

    def parse_fence(self, words: list[str]) -> Command:
        node = NodeId(int(words[0]))
        return FenceBroker(CALLER, node, self.state.brokers[node].epoch, "it is dead")

    def parse_unregister(self, words: list[str]) -> Command:
        return UnregisterBroker(CALLER, NodeId(int(words[0])))

    def parse_sessions(self, words: list[str]) -> Command:
        return StartSessions(CALLER)

    def parse_isr(self, words: list[str]) -> Command:
        """isr <topic>-<index> by=<leader> [epoch=n] [version=n] <node>[@broker epoch],…"""
        name, _, index = words[0].rpartition("-")
        options = _options([word for word in words[1:-1] if "=" in word])
        topic = self.state.topics[name]
        row = topic.partitions[int(index)]
        members = []
        for word in words[-1].split(","):
            node, _, epoch = word.partition("@")
            members.append((NodeId(int(node)), int(epoch) if epoch else -1))
        leader = NodeId(int(options["by"]))
        change = IsrChange(
            topic.topic_id, int(index), LeaderEpoch(int(options.get("epoch", row.leader_epoch))),
            int(options.get("version", row.partition_epoch)), tuple(members),
        )  # fmt: skip
        return AlterPartitions(CALLER, leader, self.state.brokers[leader].epoch, (change,))

    def parse_report(self, words: list[str]) -> Command:
        """report <node> online|complete|offline|empty <topic>-<index>"""
        name, _, index = words[2].rpartition("-")
        topic_id, node = self.state.topics[name].topic_id, NodeId(int(words[0]))
        report = ReplicaReport(topic_id, int(index), ReplicaCondition(words[1]))
        return ReportReplicas(CALLER, node, self.state.brokers[node].epoch, (report,))

    def parse_create(self, words: list[str]) -> Command:
        """create [--validate] name [partitions=n] [replicas=n] [assign=1,2;2,1] [key=value] , …"""
        topics = []
        for part in _split(words):
            options = _options(part[1:])
            count, factor = options.pop("partitions", None), options.pop("replicas", None)
            rows = options.pop("assign", None)
            topics.append(
                NewTopic(
                    part[0],
                    self.new_topic_id(),
                    None if count is None else int(count),
                    None if factor is None else int(factor),
                    () if rows is None else tuple(enumerate(_rows(rows))),
                    tuple(options.items()),
                )
            )
        return CreateTopics(CALLER, tuple(topics), validate_only=self.validating)

    def parse_validate(self, words: list[str]) -> Command:
        self.validating = True
        try:
            command: Command = getattr(self, f"parse_{words[0]}")(words[1:])
        finally:
            self.validating = False
        return command

    validating = False

    def parse_delete(self, words: list[str]) -> Command:
        return DeleteTopics(
            CALLER,
            tuple(
                TopicId(UUID(int=int(word[3:]))) if word.startswith("id:") else word
                for word in words
            ),
        )

    def parse_widen(self, words: list[str]) -> Command:
        options = _options(words[2:])
        rows = options.get("assign")
        requested = NewPartitions(words[0], int(words[1]), None if rows is None else _rows(rows))
        return CreatePartitions(CALLER, (requested,), validate_only=self.validating)

    def parse_alter(self, words: list[str]) -> Command:
        """alter topic|broker|group <name> set k=v / append k=v / subtract k=v / delete k"""
        changes = []
        for operation, pair in zip(words[2::2], words[3::2], strict=True):
            key, _, value = pair.partition("=")
            kind = ChangeKind[operation.upper()]
            changes.append(ConfigChange(key, kind, None if kind is ChangeKind.DELETE else value))
        resource = ResourceChange(ConfigScope[words[0].upper()], words[1], tuple(changes))
        return AlterConfigs(CALLER, (resource,), validate_only=self.validating)

    def parse_replace(self, words: list[str]) -> Command:
        changes = tuple(
            ConfigChange(key, ChangeKind.SET, value) for key, value in _options(words[2:]).items()
        )
        resource = ResourceChange(ConfigScope[words[0].upper()], words[1], changes, replace=True)
        return AlterConfigs(CALLER, (resource,))

    def parse_quota(self, words: list[str]) -> Command:
        """quota user=a client-id=<default> : producer_byte_rate=5 consumer_byte_rate=none"""
        colon = words.index(":")
        entity = tuple(
            (kind, None if name == "<default>" else name)
            for kind, name in _options(words[:colon]).items()
        )
        limits = tuple(
            (key, None if value == "none" else float(value))
            for key, value in _options(words[colon + 1 :]).items()
        )
        return AlterQuotas(CALLER, (QuotaChange(entity, limits),))

    def parse_elect(self, words: list[str]) -> Command:
        unclean = words[0] == "unclean"
        words = words[1:] if unclean else words
        partitions = tuple(
            (name, int(index)) for name, _, index in (w.rpartition("-") for w in words)
        )
        return ElectLeaders(CALLER, partitions, unclean)

    def parse_reassign(self, words: list[str]) -> Command:
        name, _, index = words[0].rpartition("-")
        replicas = None if words[1] == "cancel" else tuple(map(int, words[1].split(",")))
        return ReassignPartitions(CALLER, ((name, int(index), replicas),))

    def parse_producer_ids(self, words: list[str]) -> Command:
        return AllocateProducerIds(CALLER, int(words[0]))


def _options(words: list[str]) -> dict[str, str]:
    return {key: value for key, _, value in (word.partition("=") for word in words)}


def _split(words: list[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == ",":
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _rows(text: str) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(node) for node in row.split(",") if node) for row in text.split(";"))


def _row(index: int, row: PartitionState) -> str:
    """A partition in words."""
    leader = "none" if row.leader == NO_LEADER else row.leader
    sets = [f"isr {','.join(map(str, row.isr)) or '-'}"]
    sets += [f"elr {','.join(map(str, row.elr))}"] if row.elr else []
    sets += [f"last known {','.join(map(str, row.last_known_elr))}"] if row.last_known_elr else []
    sets += [f"offline {','.join(map(str, row.offline))}"] if row.offline else []
    sets += ["recovering"] if row.is_recovering else []
    epochs = f"epoch {row.leader_epoch} version {row.partition_epoch}"
    return f"{index}: leader {leader} {epochs} {' '.join(sets)}"


def _short(result: object) -> str:
    match result:
        case Refused():
            return f"refused {result}"
        case HeartbeatReply():
            words = ["caught up"] if result.is_caught_up else ["behind"]
            words += ["fenced"] if result.is_fenced else []
            words += ["may stop"] if result.may_stop else []
            return ", ".join(words)
        case PartitionState():
            return _row(0, result)[3:]
        case tuple():
            return " ".join(str(part.int if isinstance(part, UUID) else part) for part in result)
        case _:
            return str(result).replace("None", "ok")


def _picture(state: ClusterState) -> dict[str, Any]:
    return {
        "cluster": state.cluster_id,
        "topics": {
            name: {
                "id": topic.topic_id.int,
                "partitions": [tuple(row) for row in topic.partitions],
            }
            for name, topic in sorted(state.topics.items())
        },
        "by_id": sorted(topic_id.int for topic_id in state.topics_by_id),
        "alike": sorted(map(sorted, state.topics_by_folded_name.values())),
        "configs": {
            f"{scope.name} {name}": own for (scope, name), own in sorted(state.configs.items())
        },
        "quotas": sorted(map(str, state.quotas.items())),
        "brokers": [tuple(broker) for _, broker in sorted(state.brokers.items())],
        "features": state.features,
        "end_producer_id": state.end_producer_id,
    }


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_controller_does_what_the_case_file_says(
    path: Path, run_cases: Callable[[Path, Callable[[str], str]], None]
) -> None:
    run_cases(path, Scenario().step)


STEPS = [
    "start 1",
    "start 1 clean=no",
    "start 2",
    "start 3 rack=a",
    "fence 2",
    "heartbeat 1",
    "heartbeat 2",
    "heartbeat 2 stop=yes",
    "wait 400",
    *(f"create {name} partitions=2" for name in ("a", "b", "a.b", "a_b")),
    "create a replicas=2 retention.ms=5",
    "create b assign=1,2;2,1",
    *(f"delete {name}" for name in ("a", "b", "a.b", "a_b", "a b")),
    "widen a 3",
    "widen b 4",
    "reassign a-0 2,1",
    "reassign b-1 1,2",
    "reassign b-0 2,1",
    "elect a-0 a-1 b-0 b-1",
    "alter topic a set retention.ms=7 append cleanup.policy=compact",
    "alter topic a delete retention.ms",
    'alter broker "" set log.retention.ms=9',
    'alter broker "" delete log.retention.ms',
    "quota user=x : producer_byte_rate=9",
    "quota user=x : producer_byte_rate=none",
    "producer-ids 10",
]


@settings(deadline=None, max_examples=150)
@given(st.lists(st.sampled_from(STEPS), max_size=40))
def test_any_history_replays_to_the_same_state_also_from_a_compacted_log(steps: list[str]) -> None:
    scenario = Scenario()
    for step in ["start 1", "start 2", *steps]:
        scenario.step(step)
    assert scenario.step("replay") == "same"
    assert scenario.step("compact") == "same"


@settings(deadline=None, max_examples=100)
@given(st.lists(st.sampled_from(STEPS), max_size=40))
def test_a_snapshot_replays_to_the_same_state(steps: list[str]) -> None:
    scenario = Scenario()
    for step in ["start 1", "start 2", *steps]:
        scenario.step(step)
    again = scenario.machine.fresh()
    for event in snapshot_events(scenario.state):
        for stored in scenario.machine.read_events(scenario.machine.write_event(event), None):
            scenario.machine.apply(again, stored)
    scenario.machine.validate(again)
    assert _picture(again) == _picture(scenario.state)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.sampled_from(STEPS), max_size=20), st.lists(st.sampled_from(STEPS), max_size=20))
def test_a_fork_and_its_origin_change_independently(before: list[str], after: list[str]) -> None:
    scenario = Scenario()
    for step in ["start 1", "start 2", *before]:
        scenario.step(step)
    origin, picture = scenario.state, _picture(scenario.state)
    counters = scenario.last_topic_id, dict(scenario.incarnations), scenario.now, len(scenario.log)
    pictures = []
    for state in (origin.fork(), origin):
        state.sessions, state.stops_awaited = dict(origin.sessions), dict(origin.stops_awaited)
        state.unfences_awaited = dict(origin.unfences_awaited)
        scenario.state = state
        scenario.last_topic_id, incarnations, scenario.now, log_end = counters
        scenario.incarnations = dict(incarnations)
        del scenario.log[log_end:]
        assert _picture(origin) == picture  # whatever was done to the fork
        for step in after:
            scenario.step(step)
        pictures.append(_picture(state))
    assert pictures[0] == pictures[1]


@settings(deadline=None, max_examples=100)
@given(st.lists(st.sampled_from(STEPS), max_size=40))
def test_a_compacted_log_keeps_nothing_of_deleted_topics(steps: list[str]) -> None:
    scenario = Scenario()
    for step in ["start 1", "start 2", *steps]:
        scenario.step(step)
    for name in tuple(scenario.state.topics):
        scenario.step(f"delete {name}")
    last = {record.key.decode(): record.value for record in scenario.log}
    left = [key for key, value in last.items() if value is not None]
    assert not [key for key in left if key.startswith(("topic/", "partition/", "config/topic/"))]
