"""Replication of a partition without I/O: the leader's in-sync replicas, the follower's next step.

`leader` decides what is committed and which replicas are in sync; `follower` decides what a
follower does with the response to its fetch. Neither reads a log, a clock or a socket.
"""

from penstock.consensus.replica.follower import (
    Append,
    FetchState,
    Follow,
    Restart,
    RetryLater,
    Stop,
    Truncate,
    decide_response,
)
from penstock.consensus.replica.leader import InSyncReplicas, Proposal, ReplicaSettings

__all__ = [
    "Append",
    "FetchState",
    "Follow",
    "InSyncReplicas",
    "Proposal",
    "ReplicaSettings",
    "Restart",
    "RetryLater",
    "Stop",
    "Truncate",
    "decide_response",
]
