"""Avro: parse, canonical text, normal form, equality and schema resolution.

The reference is Avro's Java library 1.12, because Confluent's registry uses it: this package
accepts, prints and calls compatible what that library does.
"""

from penstock.schemas.avro.schema import AvroSchema, parse

__all__ = ["AvroSchema", "parse"]
