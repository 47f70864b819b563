"""JSON Schema: parse, canonical text, validation and compatibility.

The reference is Confluent's registry: this package stores what it stores, and calls compatible
under the strict and lenient policies what it calls compatible. Unlike it, this package never
fetches a `$ref`.
"""

from penstock.schemas.json.schema import JsonSchema, parse, validate

__all__ = ["JsonSchema", "parse", "validate"]
