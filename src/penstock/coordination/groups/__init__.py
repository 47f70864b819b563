"""The group coordinator: classic and consumer-protocol groups, and their offsets. Pure."""

from penstock.coordination.groups.machine import GroupMachine
from penstock.coordination.groups.settings import GroupSettings
from penstock.coordination.groups.state import NO_TOPICS, GroupsState, TopicCatalogue, TopicInfo

__all__ = [
    "NO_TOPICS",
    "GroupMachine",
    "GroupSettings",
    "GroupsState",
    "TopicCatalogue",
    "TopicInfo",
]
