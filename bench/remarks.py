"""What a reader must know about a result, such as why a target is missed: below its table."""

from typing import Final

_OLD_FLOORS: Final = (
    "The floors of this run are older than `bench/kafka_floor.py`: they were measured with an HTTP"
    " client, and do not compare with the other columns."
)
REMARKS: Final = {
    "broker_latency": _OLD_FLOORS,
    "cluster": (
        "The target of 16 kB batches comes from a run in which Apache Kafka reached 15 to 17 MB/s;"
        " after a longer warm-up it reaches more than 40. The longest turn is the lateness of a"
        " timer: it includes waiting for one of two processors beside two other brokers and the"
        " load, and the filling of memory between rounds (`bench/memory.py`). In a run without that"
        " filling it was 42 ms; which of the two causes weighs more was not measured."
    ),
    "cluster_latency": (
        "These rounds had a shorter warm-up than the script has now: Apache Kafka's p99 was 371 and"
        " 130 ms in the first two, then 12 to 25 ms, and its p50 1.7 and 0.9, then 0.7 ms. "
        + _OLD_FLOORS
    ),
    "cluster_failover": (
        "After a kill, the other brokers name a new leader within 0.1 to 0.2 s (four kills). The"
        " rest is the client: librdkafka continues after one or two whole seconds, which misses"
        " limits of whole seconds by milliseconds."
    ),
    "metrics": (
        "Other programs used the two processors during this run (load average 32); how much of the"
        " figures is due to that was not measured. In two earlier runs under similar load, with"
        " rounds of wall time, the ratios were 1.03 and 1.35, and the longest turn was 2.4 ms."
    ),
}
