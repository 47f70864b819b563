"""A partition on disk: segments, sparse indexes, producer table, append, read, recover.

Apache Kafka's folder layout, file for file, so that its tools read ours. Written by one task on one
event loop; holds no locks, starts no threads, reads no clock.
"""
