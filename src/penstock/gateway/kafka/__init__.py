"""What the gateway asks of a Kafka cluster, as operations of `link`: no I/O of its own."""
