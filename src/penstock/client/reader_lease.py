"""A consumer that says what it reads, for as long as it runs.

A thread declares the reader when the consumer starts and looks every few hours whether it is to be
renewed, so a reader that is deployed never expires and one that is gone does by itself. What goes
wrong is logged and tried again: reading never waits for it.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Final

from penstock.client.registry import Registry
from penstock.gate.registry_api import RegistryApi
from penstock.gate.registry_readers import LEASE_DAYS, declare_reader, leased
from penstock.schemas.readers import Reader
from penstock.serde.contract import Contract, subject_name
from penstock.serde.errors import ClientError
from penstock.serde.frame import Side

logger = logging.getLogger(__name__)

LOOK_S: Final = 6 * 3600.0  # between two looks; a lease is renewed when half of it is over
RETRY_S: Final = 60.0
STOP_S: Final = 1.0  # a request that is under way is not waited for


def today_utc() -> date:
    """Leases end with a day by UTC, as registries and their clients may be anywhere."""
    return datetime.fromtimestamp(time.time(), UTC).date()


class ReaderLease:
    """Keeps one reader of some topics' values declared until it is closed."""

    def __init__(
        self,
        registry: Registry,
        topics: list[str],
        reader: Reader,
        contract: Contract | None = None,
        *,
        days: int = LEASE_DAYS,
        today: Callable[[], date] = today_utc,
        look_s: float = LOOK_S,
        retry_s: float = RETRY_S,
    ) -> None:
        self._registry = registry
        self._topics = [topic for topic in topics if not topic.startswith("^")]  # not a pattern
        self._reader = reader
        self._contract = contract or Contract()
        self._days = days
        self._today = today
        self._look_s = look_s
        self._retry_s = retry_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader-lease", daemon=True)
        self._thread.start()

    def renew(self) -> None:
        """Declare the reader of each topic now, unless it is declared and not due."""
        reader, name = self._reader, self._contract.message_name
        source = self._contract.source(self._registry.refer)
        if source is not None:
            schema = self._registry.understand(source)
            reader, name = replace(reader, schema=schema), name or schema.name
        elif reader.schema is None:  # it reads with the latest version there is
            reader = replace(reader, only_fields=bool(reader.fields))
        today = self._today()
        for topic in self._topics:
            subject = subject_name(self._contract.names, topic, Side.VALUE, name)
            api = RegistryApi(self._registry.http)
            if declare_reader(api, subject, leased(reader, today, self._days), today):
                logger.info("%s is declared as a reader of %s", reader.title, subject)

    def close(self) -> None:
        """Renew no more; the lease that is there runs out by itself."""
        self._stopping.set()
        self._thread.join(STOP_S)

    def _run(self) -> None:
        wait_s = 0.0
        while not self._stopping.wait(wait_s):
            try:
                self.renew()
                wait_s = self._look_s
            except ClientError as failure:
                logger.warning("%s is not declared as a reader: %s", self._reader.title, failure)
                wait_s = self._retry_s
