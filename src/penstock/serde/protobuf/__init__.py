"""Protobuf: single events, and many events as Arrow."""
