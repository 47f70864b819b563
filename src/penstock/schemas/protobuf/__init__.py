"""Protobuf: reading, canonical text, normal form, descriptors, message indexes and differences.

The peers are Confluent's registry, for what is stored and what is called compatible, and the
Protocol Buffers compiler, for what is valid.
"""

from penstock.schemas.protobuf.schema import ProtobufSchema, parse

__all__ = ["ProtobufSchema", "parse"]
