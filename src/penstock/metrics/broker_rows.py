"""The metrics of a broker and its upkeep worker. Per-topic series are capped by `TOPICS_MAX`."""

from functools import partial
from typing import Final

from penstock.metrics.row import BYTES, SECONDS, MetricRow, MetricType, Source, rows_in

TOPICS_MAX: Final = 1000  # topics with series of their own
GROUPS_MAX: Final = 1000

_counter = partial(MetricRow, Source.BROKER, MetricType.COUNTER)
_gauge = partial(MetricRow, Source.BROKER, MetricType.GAUGE)
_histogram = partial(MetricRow, Source.BROKER, MetricType.HISTOGRAM)

# Requests.
REQUESTS: Final[MetricRow] = _counter(
    "broker_requests_total",
    "Requests. result is ok, or error if the response has an error code anywhere.",
    ("api", "result"),
)
ERRORS: Final[MetricRow] = _counter("broker_errors_total", "Error codes in responses.", ("error",))
REQUEST_SECONDS: Final[MetricRow] = _histogram(
    "broker_request_seconds",
    "Time that requests took on the event loop. api is Produce, Fetch or other.",
    ("api",),
    SECONDS,
)
WAIT_SECONDS: Final[MetricRow] = _histogram(
    "broker_wait_seconds",
    "Time from a request to its response, of requests that waited for replicas, a flush, other "
    "members or more records. api is Produce, Fetch or other.",
    ("api",),
    SECONDS,
)
RECEIVED_BYTES: Final[MetricRow] = _counter(
    "broker_received_bytes_total", "Bytes of batches that were appended.", ("topic",)
)
RECORDS: Final[MetricRow] = _counter(
    "broker_records_total", "Records that were appended.", ("topic",)
)
SENT_BYTES: Final[MetricRow] = _counter(
    "broker_sent_bytes_total", "Bytes of batches that were sent to consumers.", ("topic",)
)
PARTITION_SKEW: Final[MetricRow] = _gauge(
    "broker_partition_skew_ratio",
    "Records of a topic's busiest partition led here, divided by the average of its partitions, in "
    "the last 10 s or more.",
    ("topic",),
)
BATCH_BYTES: Final[MetricRow] = _histogram(
    "broker_batch_bytes", "Sizes of batches that were appended.", (), BYTES
)
TOPICS_NOT_SHOWN: Final[MetricRow] = _gauge(
    "broker_topics_not_shown", f"Topics without series: more than {TOPICS_MAX} exist."
)

# Connections.
CONNECTIONS: Final[MetricRow] = _gauge("broker_connections", "Open connections.", ("listener",))
CONNECTIONS_MAX: Final[MetricRow] = _gauge(
    "broker_connections_max", "Limit of connections.", ("listener",)
)
CONNECTIONS_ACCEPTED: Final[MetricRow] = _counter(
    "broker_connections_accepted_total", "Connections that were accepted.", ("listener",)
)
CONNECTIONS_REFUSED: Final[MetricRow] = _counter(
    "broker_connections_refused_total", "Connections refused, because of a limit.", ("listener",)
)
WAITING_REQUESTS: Final[MetricRow] = _gauge(
    "broker_waiting_requests", "Requests without a response yet. kind is fetch or other.", ("kind",)
)
UNSENT_BYTES: Final[MetricRow] = _gauge(
    "broker_unsent_bytes", "Bytes of responses that clients have not read yet."
)
THROTTLED_SECONDS: Final[MetricRow] = _counter(
    "broker_throttled_seconds_total",
    "Time that quotas made clients wait. quota is produce, fetch or request.",
    ("quota",),
)

# The cluster, as this broker sees it.
CLUSTER_BROKERS: Final[MetricRow] = _gauge("cluster_brokers", "Brokers that are alive.")
CLUSTER_TOPICS: Final[MetricRow] = _gauge("cluster_topics", "Topics, internal ones included.")
ACTIVE_CONTROLLER: Final[MetricRow] = _gauge(
    "cluster_active_controller", "1 if this broker is the controller."
)
OFFLINE_PARTITIONS: Final[MetricRow] = _gauge(
    "cluster_offline_partitions", "Partitions without a leader."
)
UNDER_REPLICATED: Final[MetricRow] = _gauge(
    "cluster_under_replicated_partitions", "Partitions led here with a replica out of sync."
)
UNDER_MIN_ISR: Final[MetricRow] = _gauge(
    "cluster_under_min_isr_partitions",
    "Partitions led here with fewer replicas in sync than min.insync.replicas.",
)
PARTITIONS: Final[MetricRow] = _gauge(
    "broker_partitions", "Partitions of this broker. role is leader or follower.", ("role",)
)
ELECTIONS: Final[MetricRow] = _counter(
    "cluster_elections_total", "Times that a partition of this broker got another leader."
)
OFFLINE_REPLICAS: Final[MetricRow] = _gauge(
    "broker_offline_replicas", "Replicas of this broker whose log cannot be used."
)
REPLACED_REPLICAS: Final[MetricRow] = _counter(
    "broker_replaced_replicas_total", "Damaged logs that were set aside and copied again."
)
UNCLEAN_ELECTIONS: Final[MetricRow] = _counter(
    "cluster_unclean_elections_total",
    "Times that a partition of this broker got a leader that may lack committed records.",
)
ISR_CHANGES: Final[MetricRow] = _counter(
    "replica_isr_changes_total",
    "Changes of the in-sync replicas of partitions of this broker. direction is shrink or expand.",
    ("direction",),
)
REPLICA_LAG: Final[MetricRow] = _gauge(
    "replica_lag_records",
    "Records that the follower lacks that lacks most, of a topic's partitions led here.",
    ("topic",),
)

# The log.
LOG_SIZE_BYTES: Final[MetricRow] = _gauge(
    "log_size_bytes", "Size of a topic's logs here.", ("topic",)
)
LOG_SEGMENTS: Final[MetricRow] = _gauge("log_segments", "Segments of all logs.")
LOG_FLUSH_SECONDS: Final[MetricRow] = _histogram(
    "log_flush_seconds", "Time that groups of logs took to be synced.", (), SECONDS
)
LOG_FLUSH_ERRORS: Final[MetricRow] = _counter(
    "log_flush_errors_total", "Logs that could not be synced."
)
LOG_RECOVERY_SECONDS: Final[MetricRow] = _gauge(
    "log_recovery_seconds", "Time from the start of the process until it served."
)
LOG_WAS_CLEAN: Final[MetricRow] = _gauge("log_was_clean", "1 if the previous stop was clean.")
DISK_FREE_BYTES: Final[MetricRow] = _gauge(
    "disk_free_bytes", "Free space of the log directory.", ("dir",)
)
DISK_SIZE_BYTES: Final[MetricRow] = _gauge("disk_size_bytes", "Size of its file system.", ("dir",))

# Upkeep.
COMPACTIONS: Final[MetricRow] = _counter(
    "compactions_total", "Compactions of a partition. result is done or failed.", ("result",)
)
COMPACTION_DIRTY_RATIO: Final[MetricRow] = _gauge(
    "compaction_dirty_ratio",
    "Share of a topic's dirtiest log that was not compacted yet, at the last choice.",
    ("topic",),
)
COMPACTION_NOT_SHOWN: Final[MetricRow] = _gauge(
    "compaction_topics_not_shown",
    f"Compacted topics without series: more than {TOPICS_MAX} exist.",
)
COMPACTION_LAST_RUN: Final[MetricRow] = _gauge(
    "compaction_last_run_timestamp_seconds", "End of the last round of compaction, as Unix time."
)
COMPACTION_REMOVED_BYTES: Final[MetricRow] = _counter(
    "compaction_removed_bytes_total", "Bytes that compaction removed."
)
RETENTION_REMOVED_SEGMENTS: Final[MetricRow] = _counter(
    "retention_removed_segments_total", "Segments that retention removed."
)
UPKEEP_ROUNDS: Final[MetricRow] = _counter(
    "upkeep_rounds_total",
    "Rounds of upkeep. duty is retention, sweep or compaction; result is done or failed.",
    ("duty", "result"),
)
UPKEEP_FAILING: Final[MetricRow] = _gauge(
    "upkeep_failing_partitions", "Partitions whose upkeep failed and is retried."
)
CORRUPT_PARTITIONS: Final[MetricRow] = _gauge(
    "upkeep_corrupt_partitions", "Partitions that are not compacted because they are corrupt."
)

# Groups and transactions that this broker coordinates.
GROUPS: Final[MetricRow] = _gauge("groups", "Groups that this broker coordinates.")
GROUP_MEMBERS: Final[MetricRow] = _gauge("group_members", "Members of a group.", ("group",))
GROUP_REBALANCES: Final[MetricRow] = _counter(
    "group_rebalances_total", "Rebalances of a group, counted by its generation.", ("group",)
)
GROUPS_NOT_SHOWN: Final[MetricRow] = _gauge(
    "groups_not_shown", f"Groups without series: more than {GROUPS_MAX} exist."
)
TRANSACTIONS_OPEN: Final[MetricRow] = _gauge(
    "transactions_open", "Transactions that are open or ending."
)
TRANSACTION_OLDEST_SECONDS: Final[MetricRow] = _gauge(
    "transaction_oldest_seconds", "Age of the oldest transaction that is open or ending."
)

BROKER_ROWS: Final = rows_in(dict(globals()))
