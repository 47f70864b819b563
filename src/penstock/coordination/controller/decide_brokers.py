"""The rules of brokers: registration, heartbeats and sessions, fencing, controlled shutdown.

A broker is registered fenced. It is unfenced when it asks for it and has applied its registration
and all that was decided before it asked: what it led may have another leader since it was fenced.
It is fenced when its session ends without a heartbeat, or earlier if it is known to be dead: to
fence is always safe, for it costs availability only. The controller's own broker has no session
that ends: it shares the controller's process, and heartbeats are late only if both are. Sessions
are soft state: a controller that becomes active gives every broker a whole one.
"""

from collections.abc import Iterator
from functools import partial

from penstock.config.broker_keys import cluster_wide_values
from penstock.coordination.controller.active_replicas import follow_active
from penstock.coordination.controller.commands import (
    BrokerHeartbeat,
    ConfirmActive,
    FenceBroker,
    HeartbeatReply,
    RegisterBroker,
    StartSessions,
    UnregisterBroker,
)
from penstock.coordination.controller.elections import (
    ElectionRules,
    ReplicaChange,
    with_new_process,
    without_lost_replica,
    without_replica,
    without_unclean_replica,
)
from penstock.coordination.controller.events import (
    NO_BROKER_EPOCH,
    NO_LOG_DIR,
    BrokerRemoved,
    BrokerSet,
    ClusterIdSet,
    ConfigScope,
    ConfigSet,
    Event,
    FeatureSet,
    HeartbeatReceived,
    Note,
    PartitionState,
    ProducerIdsAllocated,
    SessionsStarted,
    StopAwaited,
    TopicEvent,
    TopicsLeft,
    UnfenceAwaited,
)
from penstock.coordination.controller.partition_changes import changed_partitions, events_for
from penstock.coordination.controller.settings import ControllerSettings
from penstock.coordination.controller.state import ClusterState
from penstock.errors import ErrorCode, Refused
from penstock.machine import Outcome, Reply, Step
from penstock.model import NO_OFFSET, Millis, Moment, NodeId, Offset


def decide_register_broker(
    state: ClusterState,
    command: RegisterBroker,
    settings: ControllerSettings,
    features: dict[str, int],
    now: Moment,
) -> Outcome[Event]:
    """Register a process as a broker; the first one also gives the cluster its id and features.

    Reply: its broker epoch. A process that registers again keeps it.
    """
    known = state.brokers.get(command.node_id)
    events: list[Event] = [
        *_first_events(state, command),
        *_new_features(state, features),
        *_cluster_settings(state, settings),
    ]
    broker = BrokerSet(
        command.node_id,
        command.host,
        command.port,
        command.rack,
        command.new_epoch,
        command.incarnation,
        is_fenced=True,
        log_dir=command.log_dir,
    )
    if known is not None and known.incarnation == command.incarnation:
        broker = broker._replace(
            epoch=known.epoch, is_fenced=known.is_fenced, is_stopping=known.is_stopping
        )
        events += [] if broker == known else [broker]
        return Outcome(tuple(events), replies=(Reply(command.caller, broker.epoch),))
    if known is not None:
        _check_session_ended(state, command.node_id, settings, now)
    events.append(broker)
    how, without = _records_kept(known, command)
    change = partial(with_new_process, without=without)
    events += _without(state, settings, command.node_id, change)
    return Outcome(
        tuple(events),
        notes=(HeartbeatReceived(command.node_id, now.steady, Offset(-1)),),
        replies=(Reply(command.caller, broker.epoch),),
        story=(Step(_story_key(command.node_id), f"{how} with epoch {{}}", (broker.epoch,)),),
    )


def _records_kept(known: BrokerSet | None, command: RegisterBroker) -> tuple[str, ReplicaChange]:
    """How a broker registers, and how its partitions go on until it is in sync."""
    if known is None:
        return "registered", without_lost_replica
    if NO_LOG_DIR != known.log_dir != command.log_dir:
        return "registered with another log directory", without_lost_replica
    if NO_BROKER_EPOCH != command.previous_epoch == known.epoch:
        return "registered", without_replica
    return "registered after an unclean stop", without_unclean_replica


def _first_events(state: ClusterState, command: RegisterBroker) -> list[Event]:
    if state.cluster_id:
        return []
    return [ClusterIdSet(command.new_cluster_id), ProducerIdsAllocated(command.first_producer_id)]


def _new_features(state: ClusterState, features: dict[str, int]) -> list[Event]:
    return [
        FeatureSet(name, level)
        for name, level in features.items()
        if state.features.get(name) != level
    ]


def _cluster_settings(state: ClusterState, settings: ControllerSettings) -> list[Event]:
    """Store the settings that all brokers must agree on, whatever each was started with."""
    known = state.overrides(ConfigScope.BROKER, "")
    stored = {**cluster_wide_values(settings.static), **known}
    return [] if stored == known else [ConfigSet(ConfigScope.BROKER, "", stored)]


def _check_session_ended(
    state: ClusterState, node_id: NodeId, settings: ControllerSettings, now: Moment
) -> None:
    """Two processes must not both be one broker. The controller's own is not a second one."""
    broker, session = state.brokers[node_id], state.sessions.get(node_id)
    if broker.is_fenced or session is None or node_id == settings.node_id:
        return
    if now.steady - session.at < settings.session_timeout_ms:
        raise Refused(
            ErrorCode.duplicate_broker_registration,
            f"Another process is registered as broker {node_id}; its session has not ended.",
        )


def decide_heartbeat(
    state: ClusterState, command: BrokerHeartbeat, settings: ControllerSettings, now: Moment
) -> Outcome[Event]:
    """Renew a session; unfence a broker that has caught up; let one stop when all know of it."""
    broker = _check_registered(state, command.node_id, command.epoch)
    heartbeat = HeartbeatReceived(command.node_id, now.steady, command.metadata_offset)
    is_caught_up = command.metadata_offset > broker.epoch
    if command.wants_stop:
        return _decide_stop(state, command, broker, heartbeat, settings)
    events: list[Event] = []
    notes: list[Note] = [heartbeat]
    if command.wants_fence and not broker.is_fenced:
        broker = broker._replace(is_fenced=True)
        partitions, left = follow_active(state, settings, [broker])
        events, notes = [broker, *partitions], [heartbeat, left]
    elif broker.is_fenced and not command.wants_fence and is_caught_up:
        awaited = state.unfences_awaited.get(broker.node_id)
        if awaited is None:
            awaited = command.end_offset
            notes.append(UnfenceAwaited(broker.node_id, awaited))
        if command.metadata_offset >= awaited:
            broker = broker._replace(is_fenced=False, is_stopping=False)
            partitions, left = follow_active(state, settings, [broker])
            events, notes = [broker, *partitions], [heartbeat, left]
    reply = HeartbeatReply(is_caught_up, broker.is_fenced, may_stop=False)
    word = "fenced at its request" if broker.is_fenced else "unfenced"
    return Outcome(
        tuple(events),
        tuple(notes),
        (Reply(command.caller, reply),),
        story=(Step(_story_key(broker.node_id), word, is_logged=True),) if events else (),
    )


def _decide_stop(
    state: ClusterState,
    command: BrokerHeartbeat,
    broker: BrokerSet,
    heartbeat: HeartbeatReceived,
    settings: ControllerSettings,
) -> Outcome[Event]:
    """Leaders move away first. The broker may stop when every live broker has applied that."""
    node_id = broker.node_id
    if not broker.is_stopping and not broker.is_fenced:
        stopping = broker._replace(is_stopping=True)
        partitions, left = follow_active(state, settings, [stopping])
        return Outcome(
            (stopping, *partitions),
            (heartbeat, left),
            (Reply(command.caller, HeartbeatReply(True, False, may_stop=False)),),
            story=(Step(_story_key(node_id), "stops: its leaders moved away"),),
        )
    awaited = state.stops_awaited.get(node_id)
    if awaited is None:  # all brokers have yet to apply that its leaders moved away
        moved = () if state.topics_left else (StopAwaited(node_id, command.end_offset),)
        reply = HeartbeatReply(True, broker.is_fenced, may_stop=broker.is_fenced)
        return Outcome(notes=(heartbeat, *moved), replies=(Reply(command.caller, reply),))
    offsets = [
        state.sessions[each].metadata_offset if each in state.sessions else Offset(-1)
        for each in state.brokers
        if state.is_active(each)
    ]
    may_stop = broker.is_fenced or all(offset >= awaited for offset in offsets)
    reply = HeartbeatReply(True, broker.is_fenced, may_stop=may_stop)
    return Outcome(notes=(heartbeat,), replies=(Reply(command.caller, reply),))


def decide_fence(
    state: ClusterState, command: FenceBroker, settings: ControllerSettings
) -> Outcome[Event]:
    """A broker is known to be dead, or its session ended. Reply: None."""
    broker = state.brokers.get(command.node_id)
    if broker is None or broker.is_fenced or broker.epoch != command.epoch:
        return Outcome(replies=(Reply(command.caller, None),))
    fenced = broker._replace(is_fenced=True)
    partitions, left = follow_active(state, settings, [fenced])
    step = Step(_story_key(broker.node_id), "fenced: {}", (command.reason,), is_logged=True)
    return Outcome((fenced, *partitions), (left,), (Reply(command.caller, None),), story=(step,))


def decide_unregister(
    state: ClusterState, command: UnregisterBroker, settings: ControllerSettings
) -> Outcome[Event]:
    """Remove a broker that will not come back. Reply: None."""
    _check_registered(state, command.node_id, None)
    events = (
        *_without(state, settings, command.node_id, without_lost_replica),
        BrokerRemoved(command.node_id),
    )
    step = Step(_story_key(command.node_id), "unregistered", is_logged=True)
    return Outcome(events, replies=(Reply(command.caller, None),), story=(step,))


def decide_confirm(state: ClusterState, command: ConfirmActive) -> Outcome[Event]:
    """Commit a record that changes nothing: only a controller that is followed can. Reply: None."""
    return Outcome((ClusterIdSet(state.cluster_id),), replies=(Reply(command.caller, None),))


def decide_start_sessions(
    state: ClusterState, command: StartSessions, now: Moment
) -> Outcome[Event]:
    """The controller became active. The last one may have left topics to follow."""
    notes = SessionsStarted(now.steady), TopicsLeft(tuple(state.topics))
    return Outcome(notes=notes, replies=(Reply(command.caller, None),))


def decide_tick(state: ClusterState, settings: ControllerSettings, now: Moment) -> Outcome[Event]:
    """Fence the brokers whose sessions ended, in one batch; go on with the topics that are left."""
    ended = [
        broker._replace(is_fenced=True)
        for broker, end in _session_ends(state, settings)
        if end <= now.steady
    ]
    names = None if ended else state.topics_left
    partitions, left = follow_active(state, settings, ended, names)
    story = tuple(
        Step(_story_key(broker.node_id), "fenced: no heartbeat", is_logged=True) for broker in ended
    )
    return Outcome((*ended, *partitions), (left,), story=story)


def next_tick(state: ClusterState, settings: ControllerSettings) -> Millis | None:
    """Now if topics are left; else when the next session ends, if there is no heartbeat before."""
    if state.topics_left:
        return Millis(0)
    return min((end for _, end in _session_ends(state, settings)), default=None)


def _session_ends(
    state: ClusterState, settings: ControllerSettings
) -> Iterator[tuple[BrokerSet, Millis]]:
    """When the sessions of brokers end.

    The controller's own broker runs as long as the controller does, once it has sent a heartbeat:
    before, it may be a process of the past.
    """
    for node_id, session in state.sessions.items():
        broker = state.brokers.get(node_id)
        is_own = node_id == settings.node_id and session.metadata_offset != NO_OFFSET
        if broker is not None and not broker.is_fenced and not is_own:
            yield broker, Millis(session.at + settings.session_timeout_ms)


def _check_registered(state: ClusterState, node_id: NodeId, epoch: int | None) -> BrokerSet:
    broker = state.brokers.get(node_id)
    if broker is None:
        raise Refused(ErrorCode.broker_id_not_registered, f"No broker {node_id} is registered.")
    if epoch is not None and broker.epoch != epoch:
        raise Refused(
            ErrorCode.stale_broker_epoch,
            f"Broker {node_id} is registered with epoch {broker.epoch}, not {epoch}.",
        )
    return broker


def _without(
    state: ClusterState, settings: ControllerSettings, node_id: NodeId, change: ReplicaChange
) -> list[TopicEvent]:
    """All partitions of a broker go on without it, before anything else is decided about it."""

    def is_active(other: NodeId) -> bool:
        return other != node_id and state.is_active(other)

    def without(row: PartitionState, rules: ElectionRules) -> PartitionState:
        return change(row, node_id, is_active, rules) if node_id in row.replicas else row

    return events_for(changed_partitions(state, settings, without))


def _story_key(node_id: NodeId) -> str:
    return f"broker {node_id}"
