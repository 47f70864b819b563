"""What a Python worker of Spark does once, so that its later tasks are cheap.

Spark collects garbage after every task of a worker that it uses again. With compiled kernels loaded
each collection looks at two hundred thousand objects that never go: a tenth of a second, which is
longer than many a task. Imports no pyspark.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


@cache
def freeze_loaded(work: str) -> None:
    """To be called at the end of a task: once for each kind of work, what it has loaded stays."""
    gc.collect()
    gc.freeze()


@contextmanager
def no_collection() -> Iterator[None]:
    """For work that makes very many small things, none of them in circles: a third of its time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
