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
        "Apache Kafka's p99 was 121 ms in the first round and 2.5 to 17 ms in the others, as it"
        " warms up; the target of this line is the limit of 10 ms."
    ),
    "cluster_failover": (
        "The client decides the time: where its first request of metadata finds no leader, it asks"
        " again after 50 ms, else after one or two whole seconds. A paused broker keeps its"
        " connections open, so that librdkafka looks for another leader only after its timeout of"
        " 1 s, which it checks once per second: it continues after two or three whole seconds,"
        " which misses a limit of whole seconds by milliseconds."
    ),
    "console": (
        "The first visit of a large cluster waits for the first sample of it: topics, first and"
        " last offsets and sizes, each 0.1 to 0.3 s for 10 000 topics. The slowest of the offsets"
        " was read beside such a sample, which shares its process."
    ),
    "gateway_streams": (
        "Sending stops later than its limit, by up to 50 ms. The cause is not known yet; it is not"
        " the client that polls the counter, which is connected before."
    ),
    "metrics": "How much of the cost is counting and how much the scrape was not measured.",
}
