"""Events to bytes and back, one by one and as columns, in Avro, Protobuf and JSON Schema."""
