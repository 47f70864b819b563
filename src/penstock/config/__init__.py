"""Settings as rows: one table of keys per scope, and narrow frozen views for everyone else."""
