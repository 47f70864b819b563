"""Clients of several kinds that use a real cluster while it fails, and what they may not see.

`Load` runs them all: idempotent and transactional producers, programs that move records exactly
once, group members of confluent-kafka and Java, and a client that changes topics and settings. Each
records its operations in one history (`tests.support.history`), which judges the run.
"""

from tests.support.cluster_load.load import Load

__all__ = ["Load"]
