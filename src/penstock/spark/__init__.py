"""Pipelines on Spark: the log as a PySpark source and sink, and the pieces to build with.

The names below are what users call; each is loaded when it is first asked for, so that Spark's
workers load no more than they need.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.spark.micro_batch import exactly_once, in_transaction, record_batches
    from penstock.spark.quarantine import split_quarantine, write_quarantine

# Never the name of a module here: importing that would put the module in the name's place.
_EXPORTS: Final = {
    "exactly_once": "penstock.spark.micro_batch",
    "in_transaction": "penstock.spark.micro_batch",
    "record_batches": "penstock.spark.micro_batch",
    "split_quarantine": "penstock.spark.quarantine",
    "write_quarantine": "penstock.spark.quarantine",
}

__all__ = [
    "exactly_once",
    "in_transaction",
    "record_batches",
    "split_quarantine",
    "write_quarantine",
]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"penstock.spark has no {name}")
    return getattr(import_module(_EXPORTS[name]), name)
