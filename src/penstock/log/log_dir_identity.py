"""The owners of files: `meta.properties` of a log directory, `partition.metadata` of a partition.

Both are small text files of Apache Kafka. Ids are written as Kafka writes them: sixteen bytes in
URL-safe base64 without padding.
"""

import errno
import logging
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from penstock.errors import Malformed
from penstock.log.files import replace_file, sync_folder
from penstock.model import NodeId, TopicId

logger: Final = logging.getLogger(__name__)

META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"


class LogDirectoryIdentity(NamedTuple):
    """The broker that a log directory belongs to."""

    cluster_id: str
    node_id: NodeId
    directory_id: UUID


def write_uuid(uuid: UUID) -> str:
    return urlsafe_b64encode(uuid.bytes).decode().rstrip("=")


def read_uuid(text: str) -> UUID:
    try:
        return UUID(bytes=urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except ValueError:
        raise Malformed(f"{text!r} is not an id", 0) from None


def save_identity(folder: Path, identity: LogDirectoryIdentity) -> None:
    lines = [
        "version=1",
        f"cluster.id={identity.cluster_id}",
        f"node.id={identity.node_id}",
        f"directory.id={write_uuid(identity.directory_id)}",
    ]
    replace_file(str(folder / META_PROPERTIES), ("\n".join(lines) + "\n").encode(), sync=True)
    sync_folder(str(folder))


def load_identity(folder: Path) -> LogDirectoryIdentity | None:
    """None when the directory has no owner yet; Malformed when the file cannot be read."""
    rows = _read_pairs(folder / META_PROPERTIES, separator="=")
    if rows is None:
        return None
    try:
        node_id = NodeId(int(rows["node.id"]))
        return LogDirectoryIdentity(rows["cluster.id"], node_id, read_uuid(rows["directory.id"]))
    except (KeyError, ValueError) as missing:
        raise Malformed(f"{folder / META_PROPERTIES} lacks {missing}", 0) from None


def save_topic_id(folder: Path, topic_id: TopicId) -> None:
    replace_file(str(folder / PARTITION_METADATA), _write_topic_id(topic_id))


def _write_topic_id(topic_id: TopicId) -> bytes:
    return f"version: 0\ntopic_id: {write_uuid(topic_id)}".encode()


def stores_topic_id(folder: Path | str, topic_id: TopicId) -> bool:
    """Whether the folder is this topic's. Quick: compares the file without parsing it."""
    try:
        descriptor = os.open(f"{folder}/{PARTITION_METADATA}", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return os.read(descriptor, 200) == _write_topic_id(topic_id)
    finally:
        os.close(descriptor)


def claim_topic_id(folder: Path, topic_id: TopicId) -> None:
    """Make the folder this topic's; FileExistsError when it belongs to another one."""
    if stores_topic_id(folder, topic_id):
        return
    owner = load_topic_id(folder)
    if owner is None:
        save_topic_id(folder, topic_id)
    elif owner != topic_id:
        reason = (
            f"belongs to topic id {write_uuid(owner)}, but the topic of that name now has id "
            f"{write_uuid(topic_id)}: move the folder away"
        )
        raise OSError(errno.EEXIST, reason, str(folder))


def load_topic_id(folder: Path) -> TopicId | None:
    """None when it was never written, or is damaged."""
    rows = _read_pairs(folder / PARTITION_METADATA, separator=":")
    if rows is None or "topic_id" not in rows:
        return None
    try:
        return TopicId(read_uuid(rows["topic_id"]))
    except Malformed:
        logger.warning("%s is damaged and counts as absent", folder / PARTITION_METADATA)
        return None


def _read_pairs(path: Path, *, separator: str) -> dict[str, str] | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return None
    pairs = (line.partition(separator) for line in lines if not line.startswith("#"))
    return {key.strip(): value.strip() for key, separated, value in pairs if separated}
