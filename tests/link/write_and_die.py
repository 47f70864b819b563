"""A worker of a transaction: writes to one partition with a handle it was given, then is killed.

Arguments: bootstrap, topic, partition, transactional id, producer id, producer epoch.
"""

import os
import signal
import sys
import time

from penstock.link import blocking
from penstock.link.send_batches import send_batches
from penstock.model import Millis, ProducerEpoch, ProducerId, SequenceNumber, TopicPartition
from penstock.protocol.records import build_batch

if __name__ == "__main__":
    bootstrap, topic, partition, transactional_id, producer_id, producer_epoch = sys.argv[1:]
    batches = [
        build_batch(
            [(None, f"{partition}:{number}".encode())],
            producer_id=ProducerId(int(producer_id)),
            producer_epoch=ProducerEpoch(int(producer_epoch)),
            base_sequence=SequenceNumber(number),
            transactional=True,
            timestamp=Millis(int(time.time() * 1000)),
        )
        for number in range(20)
    ]
    cluster = blocking.BlockingCluster(bootstrap)
    place = TopicPartition(topic, int(partition))
    cluster.run(send_batches({place: batches}, transactional_id=transactional_id))
    os.kill(os.getpid(), signal.SIGKILL)
