"""The group coordinator: classic and consumer-protocol groups, and their offsets. Pure."""

from penstock.coordination.groups.machine import GroupMachine
from penstock.coordination.groups.settings import GroupSettings
from penstock.coordination.groups.state import NO_TOPICS, Topic, TopicCatalogue

__all__ = ["NO_TOPICS", "GroupMachine", "GroupSettings", "Topic", "TopicCatalogue"]
