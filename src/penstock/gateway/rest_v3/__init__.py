"""Confluent's REST API v3: its paths, shapes and error codes over the gateway's own operations."""
