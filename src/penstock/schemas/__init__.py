"""Schemas as values: parse, canonical text, identity and compatibility of Avro, Protobuf and JSON.

All three languages implement `model.ParsedSchema`. Nothing here fetches anything: the texts of
references are arguments.
"""
