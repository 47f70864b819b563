"""Penstock: an event streaming platform for Python teams, speaking the Kafka wire protocol."""

__version__ = "0.1.0"
