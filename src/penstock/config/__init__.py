"""Settings as rows: one table of keys per scope, their effective values, and frozen views."""
