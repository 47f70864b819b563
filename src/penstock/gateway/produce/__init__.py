"""Writing events: bodies to records, records to partitions, keys that are written once."""
