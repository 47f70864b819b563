"""The spans of a quorum: shorter than Apache Kafka's, so that a killed leader costs a second."""

from dataclasses import dataclass

from penstock.model import Millis


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """Every replica of a quorum should have the same."""

    fetch_timeout_ms: Millis = Millis(600)  # a follower without a response for so long stands
    election_timeout_ms: Millis = Millis(300)  # for one round of votes; the jitter is added
    election_jitter_max_ms: Millis = Millis(300)  # exclusive; drawn by the shell
    fetch_wait_max_ms: Millis = Millis(200)  # a fetch without new records is parked for so long
    request_timeout_ms: Millis = Millis(400)  # a request without a response is repeated
    retry_backoff_ms: Millis = Millis(50)  # after a failed request
    observers_max: int = 1_000  # that fetch from a leader; it refuses more

    def __post_init__(self) -> None:
        if not self.fetch_wait_max_ms < self.request_timeout_ms <= self.fetch_timeout_ms:
            raise ValueError(
                "a parked fetch must return before its request times out, and that before the "
                f"leader is given up: {self.fetch_wait_max_ms} < {self.request_timeout_ms} <= "
                f"{self.fetch_timeout_ms} does not hold"
            )

    @property
    def check_quorum_timeout_ms(self) -> Millis:
        """A leader without fetches from a majority for so long resigns."""
        return Millis(self.fetch_timeout_ms * 3 // 2)

    @property
    def begin_epoch_interval_ms(self) -> Millis:
        """A leader calls voters that do not fetch this often."""
        return Millis(self.fetch_timeout_ms // 2)
