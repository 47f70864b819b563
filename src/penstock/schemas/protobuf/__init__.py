"""Protobuf: parse, canonical text, normal form, descriptors, message indexes and compatibility.

Confluent's registry is the reference for what is stored and what is compatible, the Protocol
Buffers compiler for what is valid.
"""

from penstock.schemas.protobuf.schema import ProtobufSchema, parse

__all__ = ["ProtobufSchema", "parse"]
