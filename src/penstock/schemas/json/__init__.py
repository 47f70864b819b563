"""JSON Schema: reading, canonical text, validation and compatibility.

The peer is Confluent's registry: what it stores, and what it calls compatible under its strict and
lenient policies, is what this package stores and calls compatible. Unlike the peer, this package
never fetches a `$ref`.
"""

from penstock.schemas.json.schema import JsonSchema, parse, validate

__all__ = ["JsonSchema", "parse", "validate"]
