"""What a Python worker of Spark does once, so that its later tasks are cheap.

Spark collects garbage after every task of a worker that it uses again. With compiled kernels loaded
each collection looks at two hundred thousand objects that never go: a tenth of a second, which is
longer than many a task. Imports no pyspark.
"""

import gc
from functools import cache


@cache
def freeze_loaded(work: str) -> None:
    """To be called at the end of a task: once for each kind of work, what it has loaded stays."""
    gc.collect()
    gc.freeze()
