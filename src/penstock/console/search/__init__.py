"""Search in the records of a topic: partitions merged by time, with an honest count, resumable."""
