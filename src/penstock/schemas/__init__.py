"""Schemas as values: parsing, canonical text, identity, compatibility, lints. A library only.

Avro, Protobuf and JSON Schema behind one shape (`model.ParsedSchema`). Nothing here fetches
anything: references are handed in as text.
"""
