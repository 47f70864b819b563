"""A partition on disk: segments, sparse indexes, producer table; append, read, truncate, recover.

The files are in Apache Kafka's layout, so that its tools read them. Written by one task on one
event loop; starts no threads and reads no clock.
"""

from penstock.log.append_plan import Appended
from penstock.log.files import LogFile, OpenFiles
from penstock.log.flush import FlushWork
from penstock.log.leader_epochs import EpochStart, LeaderEpochs
from penstock.log.log_dir import LogDirectory, LogDirectoryError
from penstock.log.log_dir_identity import LogDirectoryIdentity
from penstock.log.partition_log import PartitionLog
from penstock.log.producer_state import ActiveProducer, Origin, ProducerTable
from penstock.log.segment import Segment
from penstock.log.segment_list import LogSlice
from penstock.log.segment_swap import Replacement
from penstock.log.time_lookup import TimestampMatch
from penstock.log.transaction_index import AbortedEntry

__all__ = [
    "AbortedEntry",
    "ActiveProducer",
    "Appended",
    "EpochStart",
    "FlushWork",
    "LeaderEpochs",
    "LogDirectory",
    "LogDirectoryError",
    "LogDirectoryIdentity",
    "LogFile",
    "LogSlice",
    "OpenFiles",
    "Origin",
    "PartitionLog",
    "ProducerTable",
    "Replacement",
    "Segment",
    "TimestampMatch",
]
