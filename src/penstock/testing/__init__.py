"""For tests: a pytest plugin, and the broker and platform that its fixtures start.

    from penstock.testing import EmbeddedBroker

    with EmbeddedBroker() as broker:
        print(broker.bootstrap)

EmbeddedBroker    a broker as a child process, with faults on request
EmbeddedCluster   several of them, which the fixture `penstock_cluster` returns
Platform          a broker and a registry, which the fixture `penstock` returns
"""

from typing import TYPE_CHECKING

from penstock.lazy import lazy_names

if TYPE_CHECKING:
    from penstock.testing.embedded import EmbeddedBroker as EmbeddedBroker
    from penstock.testing.embedded_cluster import EmbeddedCluster as EmbeddedCluster
    from penstock.testing.platform import Platform as Platform
else:
    __getattr__, __dir__ = lazy_names(__name__)
