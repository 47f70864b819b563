"""Events that cannot be decoded, sent to quarantine with the reason, and counted by it.

`penstock quarantine list orders` shows them; `redrive` sends them back once they can be decoded.
"""

from collections import Counter

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from examples.shop import Shop, run
from penstock.spark import split_quarantine, write_quarantine

HEADER = "penstock.quarantine."  # the prefix of the headers in quarantine
COLUMNS = "_key,_value,_topic,_partition,_offset,_timestamp,_schema_id,_error"


def start(shop: Shop, *, once: bool = True) -> StreamingQuery:
    """Start the query. Quarantine is at-least-once: a repeated batch writes its bad rows again."""
    _, bad = split_quarantine(shop.stream(shop.topics.orders, COLUMNS))

    def write(rows: DataFrame, _: int) -> None:
        write_quarantine(rows, shop.bootstrap)

    return shop.start("quarantined", bad, write, once=once)


def read_results(shop: Shop) -> dict[str, int]:
    """Counts by reason, to be compared with the expected results."""
    reader = shop.spark.read.format("penstock").option("includeHeaders", "true")
    reader = reader.option("kafka.bootstrap.servers", shop.bootstrap)
    rows = reader.option("subscribe", f"{shop.topics.orders}.quarantine").load()
    headers = sf.map_from_entries("headers")
    # An event that was written again after a failure is the same event.
    events = rows.select(
        headers[f"{HEADER}partition"].alias("partition"),
        headers[f"{HEADER}offset"].alias("offset"),
        headers[f"{HEADER}reason"].cast("string").alias("reason"),
    ).distinct()
    return dict(Counter(row["reason"] for row in events.collect()))


if __name__ == "__main__":
    run(__doc__, start)
