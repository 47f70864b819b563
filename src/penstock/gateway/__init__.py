"""The gateway: events over HTTP for programs without a Kafka client.

Reaches the log over the Kafka protocol only, so it serves any Kafka cluster. Keeps no state that a
restart may lose: positions, groups and idempotency keys are in the cluster.
"""
