"""Benchmarks: one script per subject. Each measures Penstock and a peer in the same run."""
