"""Groups under faults, from a seed: a coordinator, the clients that talk to it, and promises."""

from tests.support.group_simulation.world import World

__all__ = ["World"]
