"""For tests, ours and yours: embedded brokers, and Apache Kafka as a peer to compare with."""
