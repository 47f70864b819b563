"""Whole brokers in one thread: real handlers, links and logs, on virtual time, network and disk.

`world` runs the event loops of all simulated processes in the order of virtual time, `event_loop`
is the loop that one process sees, `network` carries bytes between loops, `disk` loses what was not
synced. Everything is drawn from one seed; a seed run twice gives the same trace.
"""
