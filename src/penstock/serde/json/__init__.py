"""JSON Schema: single events, and many events as Arrow."""
