"""A partition on disk: segments, sparse indexes, producer table, append, read, recover.

Apache Kafka's folder layout, file for file, so that its tools read ours. Written by one task on one
event loop; holds no locks, starts no threads, reads no clock.
"""

from penstock.log.epochs import EpochEnd, EpochStart, LeaderEpochs
from penstock.log.files import LogFile, OpenFiles
from penstock.log.flush import FlushWork
from penstock.log.folder import FolderUnusable, LogFolder
from penstock.log.identity import FolderIdentity
from penstock.log.partition import PartitionLog
from penstock.log.placing import Appended
from penstock.log.producers import ActiveProducer, Origin, ProducerTable
from penstock.log.segment import Segment
from penstock.log.segments import LogSlice
from penstock.log.swap import Replacement
from penstock.log.timestamps import Found
from penstock.log.txn_index import AbortedTransaction

__all__ = [
    "AbortedTransaction",
    "ActiveProducer",
    "Appended",
    "EpochEnd",
    "EpochStart",
    "FlushWork",
    "FolderIdentity",
    "FolderUnusable",
    "Found",
    "LeaderEpochs",
    "LogFile",
    "LogFolder",
    "LogSlice",
    "OpenFiles",
    "Origin",
    "PartitionLog",
    "ProducerTable",
    "Replacement",
    "Segment",
]
