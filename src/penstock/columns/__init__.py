"""Records and payloads as columns: the only package with numba.

open_batches    fetched bytes -> RecordColumns (numpy); arrow_records: the same as Arrow
build_batches   Arrow columns -> record batches, one list per Kafka partition
partitioner     Kafka's murmur2 over a column of keys
avro, protobuf  payloads <-> Arrow columns, by programs that `serde` compiles; vm: what they share
compaction_kernels, json_values
                loops over records and over Python values
compiled        how kernels are compiled and cached; warm: all of them ahead of their first use
Nothing here runs Python per record; nothing here runs on an event loop.
"""
