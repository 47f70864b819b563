"""The transaction coordinator's view of the broker's settings."""

from dataclasses import dataclass
from typing import Annotated

from penstock.config.resolve import Row
from penstock.model import Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """Limits of transactions, fixed at the start of the broker."""

    timeout_max_ms: Annotated[Millis, Row("transaction.max.timeout.ms")]
    id_expiration_ms: Annotated[Millis, Row("transactional.id.expiration.ms")]
