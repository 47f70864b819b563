"""The controller: which brokers, topics, partitions, settings and quotas the cluster has.

A machine over `__cluster_metadata`. `state` holds what is known and the events that change it,
`commands` what may be asked, `codec` how an event is stored, `machine` ties them together.
"""

from penstock.coordination.controller.machine import ControllerMachine
from penstock.coordination.controller.state import Cluster

__all__ = ["Cluster", "ControllerMachine"]
