"""Test with real brokers and registries that start in seconds, and inject faults.

    from penstock.testing import EmbeddedBroker

EmbeddedBroker, EmbeddedRegistry    one process each
Platform                            a broker and a registry, or an existing cluster
"""

from typing import TYPE_CHECKING

from penstock.lazy import lazy_names

if TYPE_CHECKING:
    from penstock.testing.embedded import EmbeddedBroker as EmbeddedBroker
    from penstock.testing.embedded import EmbeddedRegistry as EmbeddedRegistry
    from penstock.testing.platform import Platform as Platform
else:
    __getattr__, __dir__ = lazy_names(__name__)
