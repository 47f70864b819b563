"""Events pushed to clients: server-sent events and WebSocket streams with backpressure.

Streams that read the same partitions at the same position share one fetch, one rendering and one
framed chunk. A stream that cannot take more costs its position and a bounded number of bytes:
fetching for it stops, and goes on from the offset. Never drops an event to keep up.
"""
