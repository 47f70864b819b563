"""A connection to a Kafka broker, ours or any other: whole batches as bytes, in and out.

The conversation itself (`connection`), the routes through a cluster (`routes`) and every operation
are sans-IO: they take what happened and say what is to be done. Two thin shells do it, `aio` on an
event loop and `blocking` on plain sockets, with the same names in both. Never opens a record.
"""
