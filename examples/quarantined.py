"""Events that cannot be read, sent to quarantine with the reason, and counted by it.

`penstock quarantine list orders` shows them; `redrive` sends them back once they can be read.
"""

from collections import Counter

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from examples.shop import Shop, run
from penstock.client.quarantine import PREFIX, quarantine_topic
from penstock.spark import split_quarantine, write_quarantine

COLUMNS = "_key,_value,_topic,_partition,_offset,_timestamp,_schema_id,_error"


def start(shop: Shop, *, once: bool = True) -> StreamingQuery:
    """The query. Quarantine is at-least-once: a batch run again writes its bad rows again."""
    _, bad = split_quarantine(shop.stream(shop.topics.orders, COLUMNS))

    def write(rows: DataFrame, _: int) -> None:
        write_quarantine(rows, shop.bootstrap)

    return shop.start("quarantined", bad, write, once=once)


def found(shop: Shop) -> dict[str, int]:
    """How many by reason, to be compared with what was expected."""
    reader = shop.spark.read.format("penstock").option("includeHeaders", "true")
    reader = reader.option("kafka.bootstrap.servers", shop.bootstrap)
    rows = reader.option("subscribe", quarantine_topic(shop.topics.orders)).load()
    words = F.map_from_entries("headers")
    # An event that was written again after a failure is the same event.
    told = rows.select(
        words[f"{PREFIX}partition"].alias("partition"),
        words[f"{PREFIX}offset"].alias("offset"),
        words[f"{PREFIX}reason"].cast("string").alias("reason"),
    ).distinct()
    return dict(Counter(row["reason"] for row in told.collect()))


if __name__ == "__main__":
    run(__doc__, start)
