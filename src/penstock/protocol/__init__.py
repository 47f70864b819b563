"""The bytes of the Kafka protocol: record batches, frames, headers, hot answers. Pure."""
