"""A partition on disk: segments, sparse indexes, producer table, append, read, recover.

Apache Kafka's folder layout, file for file, so that its tools read ours. Written by one task on one
event loop; holds no locks, starts no threads, reads no clock.
"""

from penstock.log.append_plan import Appended
from penstock.log.files import LogFile, OpenFiles
from penstock.log.flush import FlushWork
from penstock.log.leader_epochs import EpochEnd, EpochStart, LeaderEpochs
from penstock.log.log_dir import FolderUnusable, LogFolder
from penstock.log.log_dir_identity import FolderIdentity
from penstock.log.partition_log import PartitionLog
from penstock.log.producer_state import ActiveProducer, Origin, ProducerTable
from penstock.log.segment import Segment
from penstock.log.segment_list import LogSlice
from penstock.log.segment_swap import Replacement
from penstock.log.time_lookup import Found
from penstock.log.transaction_index import AbortedTransaction

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
