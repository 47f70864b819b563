"""What the kernels of Avro and Protobuf share: slots, arenas, and walks over Python objects."""
