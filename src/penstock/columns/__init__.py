"""Record batches as vectors, and vectors as record batches: the only room with numba.

opening     fetched bytes -> RecordColumns (numpy, and Arrow without a copy)
building    Arrow columns -> record batches, one list per Kafka partition
partitioner Kafka's murmur2 over a whole key column
avro/       Avro payloads <-> Arrow columns, by programs that others compile
Nothing here runs Python per record; nothing here runs on an event loop.
"""
