"""The quorum-state file: epoch, leader and vote of this replica, as Apache Kafka stores them.

Lost or damaged, it may not be guessed: a replica that forgot its vote could vote twice in an epoch.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from penstock.consensus.raft import QuorumState, ReplicaKey
from penstock.consensus.raft.voters import NO_DIRECTORY
from penstock.errors import Malformed
from penstock.log.files import replace_file, sync_folder
from penstock.log.log_dir_identity import read_uuid, write_uuid
from penstock.model import LeaderEpoch, NodeId

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

FILE_NAME: Final = "quorum-state"
_VERSION: Final = 1
_NO_NODE: Final = -1


def load_quorum_state(folder: Path) -> QuorumState | None:
    """What was saved last; None if nothing was. ValueError: the file is damaged."""
    path = folder / FILE_NAME
    if not path.exists():
        return None
    try:
        fields = json.loads(path.read_text())
        leader, voted = fields["leaderId"], fields["votedId"]
        return QuorumState(
            LeaderEpoch(int(fields["leaderEpoch"])),
            None if leader == _NO_NODE else NodeId(int(leader)),
            None if voted == _NO_NODE else ReplicaKey(NodeId(int(voted)), _directory(fields)),
        )
    except (KeyError, TypeError, ValueError, Malformed) as error:
        raise ValueError(
            f"{path} is damaged ({error}): this broker may have voted in an election that it does"
            " not remember. Remove it from the quorum, start it with an empty folder, add it again"
        ) from error


def save_quorum_state(folder: Path, state: QuorumState) -> None:
    """Write and sync it. Takes milliseconds: run it off the event loop."""
    voted = state.voted
    fields = {
        "leaderId": _NO_NODE if state.leader_id is None else state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": _NO_NODE if voted is None else voted.node_id,
        "votedDirectoryId": write_uuid(NO_DIRECTORY if voted is None else voted.directory_id),
        "data_version": _VERSION,
    }
    replace_file(str(folder / FILE_NAME), json.dumps(fields).encode(), sync=True)
    sync_folder(str(folder))


def _directory(fields: dict[str, Any]) -> UUID:
    return read_uuid(fields.get("votedDirectoryId", ""))
