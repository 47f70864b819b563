"""The schema registry as a service: a store over the compacted topic `_schemas`, behind HTTP.

It reaches the log through a Kafka client only, so that it runs on our brokers and on Apache Kafka
alike. One node at a time is primary and writes; every node answers reads from memory.
"""
