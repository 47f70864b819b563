"""The console on Apache Kafka: pages with 5 000 topics and 1 000 000 records, in headless Chromium.

The same pages and limits as in `bench.console`, with fewer topics: creating 10 000 takes Apache
Kafka minutes on two cores.
"""

import sys
from collections.abc import Iterator

from bench.console_pages import page_figures
from bench.figures import Figure, report
from bench.peers import PeerUnavailableError, apache_kafka
from bench.registry import node

TOPICS = 5_000


def measure() -> Iterator[Figure]:
    """The pages of one server over one node of Apache Kafka; none without it, with a message."""
    try:
        with apache_kafka() as kafka, node(kafka.bootstrap) as (url, _):
            yield from page_figures(kafka.bootstrap, url, topics=TOPICS)
    except PeerUnavailableError as reason:
        print(f"no figures: {reason}", file=sys.stderr)


if __name__ == "__main__":
    report(measure(), __doc__, peer="none")
