"""The server: connections, dispatch, handlers, partitions, waiting requests, quotas."""
