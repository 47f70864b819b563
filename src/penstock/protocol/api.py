"""The APIs of the Kafka protocol: their numbers, their versions, and which versions are flexible.

Versions and flexibility come from kio's schemas. A schema is loaded when it is first needed: it
takes ten milliseconds, and most processes use few of them.
"""

from enum import IntEnum
from functools import cache, lru_cache

from kio import index
from kio.schema.index import api_key_map, schema_name_map

from penstock.protocol.kio_schema import EntityType, is_flexible


class Api(IntEnum):
    """Kafka's API keys: all that brokers serve here, and what brokers and clients here send."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82


def api_name(api_key: int) -> str | None:
    """The name of an API ("create_topics"), or None for a key that no schema has."""
    return api_key_map.get(api_key)


def known_versions(api_key: int) -> range:
    """The versions there are schemas for; none for an unknown key."""
    name = api_key_map.get(api_key)
    if name is None:
        return range(0)
    return range(min(schema_name_map[name]), max(schema_name_map[name]) + 1)


@cache
def request_schema(api_key: int, version: int) -> EntityType:
    """The generated dataclass of a request."""
    return index.load_request_schema(api_key, version)


@cache
def response_schema(api_key: int, version: int) -> EntityType:
    """The generated dataclass of a response."""
    return index.load_response_schema(api_key, version)


@lru_cache(maxsize=1024)
def is_flexible_version(api_key: int, version: int) -> bool:
    """Whether messages of this version have tagged fields. False for versions without a schema."""
    return version in known_versions(api_key) and is_flexible(request_schema(api_key, version))
