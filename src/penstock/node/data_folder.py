"""The folder of a broker's data: locked by one process, and of one node of one cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from penstock.log import LogDirectory, LogDirectoryIdentity, OpenFiles
from penstock.log.log_dir_identity import load_identity

if TYPE_CHECKING:
    from penstock.node.settings import NodeSettings


def open_folder(settings: NodeSettings) -> tuple[LogDirectory, LogDirectoryIdentity]:
    """Lock the node's folder; its identity. A new folder gets its cluster id from the quorum."""
    known = load_identity(settings.folder) if settings.folder.exists() else None
    cluster_id = settings.cluster_id or ""
    if known is not None:  # a folder of another cluster than was given is refused
        cluster_id = (known.cluster_id and cluster_id) or known.cluster_id
    directory_id = uuid4() if known is None else known.directory_id
    identity = LogDirectoryIdentity(cluster_id, settings.node_id, directory_id)
    files = OpenFiles(settings.values.integer("penstock.open.files.max"))
    return LogDirectory.open(settings.folder, files, identity=identity), identity
