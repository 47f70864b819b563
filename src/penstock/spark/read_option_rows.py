"""The options of `spark.read.format("penstock")`, a row each, as the documentation shows them.

They are named as Spark's own Kafka source names them where it has them.
"""

from typing import Final, NamedTuple


class Option(NamedTuple):
    """One option as the documentation shows it."""

    name: str
    default: str
    doc: str


OPTIONS: Final = (
    Option("kafka.bootstrap.servers", "", "The brokers, as host:port,host:port. Needed."),
    Option("kafka.*", "", "Any other property of a Kafka client: security, client.id, time-outs."),
    Option("subscribe", "", "Topics, separated by commas."),
    Option("subscribePattern", "", "A regular expression that whole names of topics match."),
    Option("assign", "", 'Partitions, as `{"orders": [0, 1]}`.'),
    Option(
        "startingOffsets",
        "earliest; of a stream latest",
        'Where to begin: `earliest`, `latest`, or `{"orders": {"0": 23, "1": -2}}`'
        " (-2 earliest, -1 latest). A stream that has a checkpoint goes on from there.",
    ),
    Option("startingOffsetsByTimestamp", "", 'By time: `{"orders": {"0": 1700000000000}}`.'),
    Option("startingTimestamp", "", "The same for all partitions: milliseconds since 1970."),
    Option(
        "startingOffsetsByTimestampStrategy",
        "error",
        "When nothing is so late: `error`, or `latest` to begin at the end.",
    ),
    Option("endingOffsets", "latest", "Where a batch ends, exclusive: `latest` or JSON."),
    Option("endingOffsetsByTimestamp", "", "The same by time; the end where nothing is so late."),
    Option("endingTimestamp", "", "The same for all partitions: milliseconds since 1970."),
    Option(
        "failOnDataLoss",
        "true",
        "Whether offsets that retention has passed, and topics deleted or made again, are an error;"
        " `false` goes on with what is there.",
    ),
    Option("maxOffsetsPerTrigger", "", "So many offsets at most in a micro-batch."),
    Option("maxBytesPerTrigger", "", "About so many bytes, as stored, at most in a micro-batch."),
    Option("minPartitions", "", "So many tasks at least; ranges of offsets are split for it."),
    Option("maxRecordsPerPartition", "", "So many offsets at most in a task."),
    Option("includeHeaders", "false", "Whether the records' headers are a column."),
    Option("registry", "", "The schema registry, as http://host:port; a login may be in the URL."),
    Option(
        "value",
        "auto with a registry; else raw",
        "What values are: `raw`, `avro`, `protobuf`, `json`, or `auto`: what the registry says.",
    ),
    Option("key", "raw", "What keys are: the same."),
    Option(
        "readerSchema",
        "latest",
        "The schema that values are seen through: a version's number, `latest`, or the text.",
    ),
    Option("keyReaderSchema", "latest", "The same for keys."),
    Option(
        "assertFormats",
        "false",
        "JSON Schema: whether a value that does not match its `format` cannot be read.",
    ),
    Option(
        "message",
        "the message of the last events",
        "Protobuf: the message that values are read as, where the schema's file has several.",
    ),
    Option("keyMessage", "the message of the last events", "The same for keys."),
    Option(
        "columns",
        "all",
        "The columns to decode and ship, separated by commas, in that order. `*` is all, without"
        " the hint in the log.",
    ),
    Option(
        "onError",
        "quarantine; fail if `columns` leaves out `_error`",
        "What becomes of a record that cannot be read: `quarantine` is a row with `_error` and the"
        " original bytes, `fail` ends the query, `null` is a row of nulls.",
    ),
    Option(
        "isolation", "read_committed", "Or `read_uncommitted`: aborted and open transactions too."
    ),
    Option(
        "registryWaitMs",
        "30000",
        "How long a task waits for a registry that is away before it fails.",
    ),
    Option(
        "group",
        "penstock.spark.<what is read>",
        "The consumer group that shows a stream's progress; `none` shows none. Name it if several"
        " streams read the same.",
    ),
)
