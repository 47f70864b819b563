"""Retention and compaction of closed segments, off the data path.

scheduler           on the broker's loop: when, which partition, and the swap; imports no numba
compaction_plan     which partition, how far, and which segments are joined: pure
jobs                the messages between broker and worker
worker              a process at the lowest priority; writes `.cleaned` files and nothing else
compact_partition   one job: map the keys, filter the batches, write the cleaned segments
"""
