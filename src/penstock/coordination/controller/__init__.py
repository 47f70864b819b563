"""The controller: which brokers, topics, partitions, settings and quotas the cluster has.

A machine over `__cluster_metadata`. One command is one batch of events.
"""

from penstock.coordination.controller.machine import ControllerMachine
from penstock.coordination.controller.state import ClusterState

__all__ = ["ClusterState", "ControllerMachine"]
