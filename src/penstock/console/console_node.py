"""What the routes of the console share: connections, samples, lag, the registry's state."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from penstock.console.live.live_hub import LiveHub
from penstock.console.overview import PENSTOCK, overview_document
from penstock.console.quarantine_reader import QuarantineReader
from penstock.console.record_view import RecordDecoder
from penstock.console.samples.lag_history import LagHistory
from penstock.console.samples.sampler import Sampler
from penstock.gateway.gateway_node import GatewayNode
from penstock.link.blocking import BlockingCluster
from penstock.link.operation import Steps, request_of
from penstock.link.routing import Routes, operation
from penstock.model import Millis
from penstock.monitor.cluster_requests import BROKER_RESOURCE, METRICS_KEY
from penstock.monitor.group_lag import NO_LAG, GroupLag, Lag
from penstock.protocol.messages.configs import (
    DESCRIBE_CONFIGS,
    ConfigsToDescribe,
    DescribeConfigsRequest,
)
from penstock.registry.registry_node import RegistryNode

RETRY_MS: Final = 4_000


class ConsoleOptions(NamedTuple):
    """What the process was started with."""

    read_only: bool = False


class ConsoleNode:
    """The console of one process."""

    def __init__(
        self,
        gateway: GatewayNode,
        registry: RegistryNode,
        lag: GroupLag,
        clock: Callable[[], Millis],
        options: ConsoleOptions,
    ) -> None:
        self.gateway: Final = gateway
        self.registry: Final = registry
        self.lag: Final = lag
        self.clock: Final = clock
        self.options: Final = options
        self.decoder: Final = RecordDecoder(gateway.schemas, gateway.renderer)
        self.lag_history: Final = LagHistory()
        self.sampler: Final = Sampler(self.connect_blocking, clock)
        self.quarantine: Final = QuarantineReader(gateway)
        self.live: Final = LiveHub(gateway, self.decoder, self.overview, self.sampler.next_sample)
        self._kind: str | None = None
        lag.listeners.append(self._note_lag)
        for stop in (self.sampler.stop, self.quarantine.stop, self.live.stop):
            gateway.on_stop(stop)

    def connect_blocking(self) -> BlockingCluster:
        """Connections of its own for a thread."""
        settings = self.gateway.link_settings(retry_timeout_ms=RETRY_MS)
        return BlockingCluster(self.gateway.bootstrap, settings)

    async def overview(self) -> dict[str, Any]:
        """The cluster as of the latest sample."""
        sample = await self.sampler.sample()
        self.quarantine.refresh_soon(sample)
        lags, totals = self.lag_of_groups(), self.quarantine.totals()
        kind, now = await self.kind(), self.clock()
        return overview_document(sample, kind, self.sampler, lags, totals, now)

    async def kind(self) -> str:
        """Whose cluster it is: penstock or kafka."""
        if self._kind is None:
            self._kind = await self.gateway.run(find_kind())
        return self._kind

    def lag_of_groups(self) -> dict[str, Lag]:
        """The lag of each group in all its topics, as of the last round."""
        lags: dict[str, Lag] = {}
        for (group, _), lag in self.lag.by_group_and_topic.items():
            lags[group] = lags.get(group, NO_LAG).add(lag)
        return lags

    def _note_lag(self) -> None:
        now = self.lag.updated_at
        rows = {
            group: (lag.records, lag.seconds(now)) for group, lag in self.lag_of_groups().items()
        }
        self.lag_history.add(now, rows)


@operation
def find_kind(routes: Routes) -> Steps[str]:
    """A cluster that knows a setting of Penstock's own is one; others leave it out."""

    def attempt() -> Steps[str]:
        yield from routes.request_metadata([])
        node = next(iter(routes.brokers))
        resource = ConfigsToDescribe(BROKER_RESOURCE, str(int(node)), [METRICS_KEY])
        request = request_of(DESCRIBE_CONFIGS, DescribeConfigsRequest([resource]), version_min=1)
        response = yield from routes.send_to_any(request)
        return PENSTOCK if any(row.configs for row in response.results) else "kafka"

    return (yield from routes.with_retries("describe a broker", attempt, lambda: None))
