"""What a link may take and how long it waits; small, frozen, and fit to be sent to workers."""

from dataclasses import dataclass

from penstock.link.login import Login
from penstock.link.tls import Tls


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """For one connection and for the cluster behind it."""

    client_id: str = "penstock"
    tls: Tls | None = None  # None: in the clear
    login: Login | None = None  # None: as nobody in particular
    connect_ms: int = 10_000
    answer_ms: int = 30_000  # an answer later than this costs the broker the connection
    retry_ms: int = 120_000  # what keeps failing is given up after this
    backoff_first_ms: int = 50
    backoff_last_ms: int = 1_000
    unsure_ms: int = 5_000  # a topic just made may be unknown to a broker; after this it is not
    metadata_age_ms: int = 300_000  # older than this, who leads what is asked again
    waiting_max: int = 64  # requests without an answer on one connection; the next one waits
    frame_bytes_max: int = 256 << 20  # a larger answer is rubbish; what TLS says looks like one


USUAL: LinkSettings = LinkSettings()
