"""The options of `format("penstock")`, one row each: the source's and the sink's.

The pages of the documentation and the check for unknown names come from these rows. Names are those
of Spark's own Kafka source and sink where it has the option.
"""

from typing import Final, NamedTuple


class SparkOption(NamedTuple):
    """One option as the documentation shows it."""

    name: str
    default: str
    doc: str
    argument: str = ""  # of the sink: the Python argument that means the same


SOURCE_OPTIONS: Final = (
    SparkOption("kafka.bootstrap.servers", "", "The brokers, as host:port,host:port. Required."),
    SparkOption(
        "kafka.*", "", "Any other property of a Kafka client: security, client.id, time-outs."
    ),
    SparkOption("subscribe", "", "Topics, separated by commas."),
    SparkOption("subscribePattern", "", "A regular expression that must match a whole topic name."),
    SparkOption("assign", "", 'Partitions, as `{"orders": [0, 1]}`.'),
    SparkOption(
        "startingOffsets",
        "earliest; of a stream latest",
        'Where to start: `earliest`, `latest`, or `{"orders": {"0": 23, "1": -2}}`'
        " (-2 earliest, -1 latest). A stream that has a checkpoint continues from there.",
    ),
    SparkOption(
        "startingOffsetsByTimestamp", "", 'Start by time: `{"orders": {"0": 1700000000000}}`.'
    ),
    SparkOption(
        "startingTimestamp", "", "Start by time in all partitions: milliseconds since 1970."
    ),
    SparkOption(
        "startingOffsetsByTimestampStrategy",
        "error",
        "If a partition has no record that late: `error`, or `latest` to start at its end.",
    ),
    SparkOption("endingOffsets", "latest", "Where a batch ends, exclusive: `latest` or JSON."),
    SparkOption(
        "endingOffsetsByTimestamp",
        "",
        "End by time, as JSON; a partition that has no record that late is read to its end.",
    ),
    SparkOption("endingTimestamp", "", "End by time in all partitions: milliseconds since 1970."),
    SparkOption(
        "failOnDataLoss",
        "true",
        "Whether to fail if offsets were deleted by retention, or a topic was deleted or created"
        " again; `false` continues with the records that exist.",
    ),
    SparkOption("maxOffsetsPerTrigger", "", "At most this many offsets per micro-batch."),
    SparkOption(
        "maxBytesPerTrigger", "", "At most about this many bytes, as stored, per micro-batch."
    ),
    SparkOption("minPartitions", "", "At least this many tasks; ranges of offsets are split."),
    SparkOption("maxRecordsPerPartition", "", "At most this many offsets per task."),
    SparkOption("includeHeaders", "false", "Whether to add a column with the record headers."),
    SparkOption(
        "registry", "", "The schema registry, as http://host:port; the URL may contain a login."
    ),
    SparkOption(
        "value",
        "auto with a registry; else raw",
        "The format of values: `raw`, `avro`, `protobuf`, `json`, or `auto` to use the type that"
        " the registry has.",
    ),
    SparkOption("key", "raw", "The format of keys; the same choices."),
    SparkOption(
        "readerSchema",
        "latest",
        "The reader schema of values: a version number, `latest`, or the schema's text.",
    ),
    SparkOption("keyReaderSchema", "latest", "The reader schema of keys."),
    SparkOption(
        "assertFormats",
        "false",
        "JSON Schema: whether a value that does not match its `format` is an error.",
    ),
    SparkOption(
        "message",
        "the message of the last events",
        "Protobuf: the message that values are read as, if the schema file has several.",
    ),
    SparkOption("keyMessage", "the message of the last events", "The same for keys."),
    SparkOption(
        "columns",
        "all",
        "The columns to decode, separated by commas, in this order. `*` means all, and turns off"
        " the hint in the log.",
    ),
    SparkOption(
        "onError",
        "quarantine; fail if `columns` leaves out `_error`",
        "What to do with a record that cannot be decoded: `quarantine` gives a row with `_error`"
        " and the original bytes, `fail` ends the query, `null` gives a row of nulls.",
    ),
    SparkOption(
        "isolation",
        "read_committed",
        "`read_uncommitted` also reads aborted and open transactions.",
    ),
    SparkOption(
        "registryWaitMs",
        "30000",
        "How long a task retries while the registry cannot be reached.",
    ),
    SparkOption(
        "group",
        "penstock.spark.<selection>",
        "The consumer group that shows a stream's progress; `none` disables it. Set it if several"
        " streams read the same topics.",
    ),
    SparkOption(
        "tracing",
        "",
        "Streams: a function, as `module:name`, that sets OpenTelemetry up in the process that"
        " plans the source. Each micro-batch is then a span with links to those that sent records.",
    ),
)

SINK_OPTIONS: Final = (
    SparkOption(
        "kafka.bootstrap.servers",
        "",
        "The brokers, as host:port,host:port. Required.",
        "bootstrap",
    ),
    SparkOption(
        "kafka.*",
        "",
        "Any other property of a Kafka client: `compression.type`, `batch.size`, security.",
        "kafka",
    ),
    SparkOption("topic", "", "The topic to write to.", "topic"),
    SparkOption(
        "topicColumn",
        "`topic` or `_topic`",
        "Without `topic`: the column that names the topic of each row.",
        "topic_column",
    ),
    SparkOption(
        "key",
        "`_key`; without `schema` also `key`",
        "A column of text or bytes; several columns, separated by commas, with `keySchema`.",
        "key",
    ),
    SparkOption(
        "value",
        "with `schema` the whole row; else `value` or `_value`",
        "A column; several with `schema`.",
        "value",
    ),
    SparkOption(
        "schema",
        "text and bytes are written unchanged",
        "The schema of values: its text, an `.avsc`, `.proto` or `.json` file, or `latest`."
        " In Python also a `Contract` or a `Path`.",
        "schema",
    ),
    SparkOption("keySchema", "", "The schema of keys; the same choices.", "key_schema"),
    SparkOption("registry", "", "The schema registry. Required with a schema.", "registry"),
    SparkOption(
        "headers",
        "`_headers`; without `schema` also `headers`",
        "A column `array<struct<key: string, value: binary>>`.",
        "headers",
    ),
    SparkOption(
        "partition",
        "without `schema`, `partition`; else the hash of the key",
        "A column with the partition number. The hash is murmur2, as in the Java clients.",
        "partition",
    ),
    SparkOption(
        "timestamp", "the time of writing", "A column with the record's timestamp.", "timestamp"
    ),
    SparkOption(
        "query",
        "made of the topic and the checkpoint",
        "Streams: the name of the writer. Only one query at a time may use it.",
        "query",
    ),
    SparkOption(
        "checkpointLocation",
        "",
        "Streams: the query's checkpoint. `exactly_once` needs it over Spark Connect only.",
        "checkpoint",
    ),
    SparkOption(
        "timeoutMs",
        "900000",
        "How long a transaction may stay open. Brokers allow 15 minutes by default.",
        "timeout_ms",
    ),
    SparkOption(
        "transactionalId", "a random id", "Batch jobs: the transactional id to write with."
    ),
)
