"""Spark's own Kafka connector and Avro functions, as peers: jars that a session is started with.

    session(settings={"spark.jars": spark_jars()})

They come out later than Spark itself and not all at once: of each the newest that resolves is used.
The jars that a Spark from PyPI brings along are left out.
"""

from typing import Final

from tests.support.maven import Artifact, PeerUnavailableError, fetch_jars

__all__ = ["VERSION", "PeerUnavailableError", "spark_jars"]

VERSION: Final = "4.2.0"
_ARTIFACTS: Final = (
    Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION),
    Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    Artifact("org.apache.spark", "spark-avro_2.13", "4.1.1"),
    Artifact("org.apache.kafka", "kafka-clients", "3.9.1"),
    Artifact("org.apache.commons", "commons-pool2", "2.12.0"),
)


def spark_jars() -> str:
    """A value for `spark.jars`; raises PeerUnavailableError where they cannot be had."""
    folder = fetch_jars(
        "Spark's connector", f"spark-connector-{VERSION}", _ARTIFACTS, with_dependencies=False
    )
    return ",".join(str(jar) for jar in sorted(folder.glob("*.jar")))
