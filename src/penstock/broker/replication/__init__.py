"""Copies of partitions: what a leader serves to followers, and how a follower fetches."""
