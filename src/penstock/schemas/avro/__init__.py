"""Avro: reading, canonical text, normal form, equality and schema resolution.

The peer is Avro's Java library 1.12, because Confluent's registry is built on it: what it accepts,
prints and calls compatible is what this package accepts, prints and calls compatible.
"""

from penstock.schemas.avro.schema import AvroSchema, parse

__all__ = ["AvroSchema", "parse"]
