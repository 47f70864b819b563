"""A connection to a Kafka broker, Penstock's or any other: whole batches as bytes, in and out.

The protocol of a connection (`connection`), the routes through a cluster (`routing`) and every
operation do no I/O: they take events and return effects. Two thin shells perform these, `aio` on an
event loop and `blocking` on sockets. Never opens a record.
"""
