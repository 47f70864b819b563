"""Where the lab's processes come from: a server that has loaded the code and has no threads."""

import multiprocessing
from multiprocessing.context import ForkServerContext
from typing import Final

_PRELOADED: Final = [
    "penstock.lab.order_fleet", "penstock.lab.rollout_workers", "penstock.lab.loaded_kernels",
]  # fmt: skip


def lab_processes() -> ForkServerContext:
    """The context to start processes with; each starts in a few milliseconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


def is_parent_alive() -> bool:
    """Whether the experiment that started this process still runs and can use its results."""
    parent = multiprocessing.parent_process()
    return parent is None or parent.is_alive()
