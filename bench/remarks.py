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
        " load, and the filling of memory between rounds (`bench/memory.py`)."
    ),
    "cluster_latency": (
        "In three of the five rounds Apache Kafka's p99 was lower: 121, 4.4, 17, 2.5 and 3.6 ms,"
        " and Penstock's 6.8, 9.2, 9.0, 9.4 and 6.5. The cause was not looked for."
    ),
    "cluster_failover": (
        "Rounds end near 0.2 s or near whole seconds. In a traced round of 1.0 s librdkafka had"
        " learned at once that there was no leader, but had no request in flight, and asked again"
        " late. Rounds with a paused broker were not traced; an earlier run had one of 4.0 s."
    ),
    "console": (
        "The first visit of a large cluster waits for the first sample of it: topics, first and"
        " last offsets and sizes, each 0.1 to 0.3 s for 10 000 topics. Samples may also be why"
        " some offsets take longer than others; that was not measured."
    ),
    "gateway_streams": (
        "Sending stops later than its limit, by up to 50 ms. The cause is not known yet; it is not"
        " the client that polls the counter, which is connected before."
    ),
    "metrics": "How much of the cost is counting and how much the scrape was not measured.",
}
