"""All open pages, and the tickers that feed them.

One ticker for each topic that is tailed, and one for the overview, however many pages there are;
they run while a page needs them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any, Final

import msgspec

from penstock.console.live.live_page import RECORDS_MAX, LivePage
from penstock.console.live.tail_ticker import TailTicker
from penstock.console.record_view import RecordDecoder, RecordView
from penstock.console.search.merged_scan import Direction, MergedScan, ScanRange
from penstock.console.search.read_ranges import RangeReader
from penstock.errors import Malformed, Refused
from penstock.gateway.errors import GatewayError, as_gateway_error, bad_request, too_many
from penstock.gateway.gateway_node import GatewayNode
from penstock.model import Offset, TopicPartition
from penstock.serde.errors import ClientError

PAGES_MAX: Final = 500
TOPICS_MAX: Final = 10  # of one page
TICKERS_MAX: Final = 100
CATCH_UPS_MAX: Final = 5
_CHUNK_BYTES: Final = 128 << 10
_DIGITS_MAX: Final = 19
_FAILURES: Final = (OSError, Refused, Malformed, ClientError, GatewayError)
_encode = msgspec.json.Encoder().encode

Overview = Callable[[], Awaitable[dict[str, Any]]]  # of the latest sample
NextSample = Callable[[], Awaitable[None]]


class ResumeFrom(msgspec.Struct, forbid_unknown_fields=True):
    """The next offsets, by topic and partition."""

    offsets: dict[str, dict[str, str]]


class LiveRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What a page sends."""

    subscribe: str | None = None  # overview | tail | redrive
    unsubscribe: str | None = None
    topics: Annotated[list[str], msgspec.Meta(min_length=1, max_length=TOPICS_MAX)] | None = None
    from_: ResumeFrom | None = msgspec.field(default=None, name="from")
    id: Annotated[str, msgspec.Meta(max_length=200)] | None = None


class LiveHub:
    """The pages of this process."""

    def __init__(
        self,
        node: GatewayNode,
        decoder: RecordDecoder,
        overview: Overview,
        next_sample: NextSample,
    ) -> None:
        self._node = node
        self._decoder = decoder
        self._overview = overview
        self._next_sample = next_sample
        self._pages: set[LivePage] = set()
        self._tickers: dict[str, TailTicker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._overview_task: asyncio.Task[None] | None = None

    def open(self) -> LivePage:
        """A new page; declined beyond `PAGES_MAX`."""
        if len(self._pages) >= PAGES_MAX:
            raise too_many("too_many_pages", f"{PAGES_MAX} pages are open; close some of them")
        page = LivePage()
        self._pages.add(page)
        return page

    async def close(self, page: LivePage) -> None:
        """The page is gone."""
        self._pages.discard(page)
        await self._stop_unused()

    def end_pages(self) -> None:
        """Before the process stops: pages connect again to the next one."""
        for page in self._pages:
            page.end()

    async def stop(self) -> None:
        self.end_pages()
        self._pages.clear()
        await self._stop_unused()

    def publish_redrive(self, redrive_id: str, message: dict[str, Any]) -> None:
        """Progress, to the pages that wait for it."""
        for page in self._pages:
            if redrive_id in page.redrives:
                page.offer(f"redrive {redrive_id}", message)

    async def handle(self, page: LivePage, text: str) -> None:
        """A message of a page; errors are sent to it, and the connection stays."""
        name = None
        try:
            request = _read_request(text)
            name = request.subscribe or request.unsubscribe
            if request.unsubscribe is not None:
                await self._unsubscribe(page, request)
            else:
                await self._subscribe(page, request)
        except _FAILURES as failure:
            error = as_gateway_error(failure).document["error"]
            page.offer(f"error {name}", {"type": "error", "name": name, "error": error})

    async def _subscribe(self, page: LivePage, request: LiveRequest) -> None:
        match request.subscribe:
            case "overview":
                page.has_overview = True
                self._start_overview()
                page.offer("overview", await self._overview())
            case "tail" if request.topics is not None:
                await self._tail(page, request.topics, request.from_)
            case "redrive" if request.id is not None:
                page.redrives.add(request.id)
            case _:
                raise bad_request(
                    "subscribe to overview, to tail with topics, or to redrive with an id"
                )
        name = request.subscribe
        page.offer(f"subscribed {name}", {"type": "subscribed", "name": name})

    async def _unsubscribe(self, page: LivePage, request: LiveRequest) -> None:
        match request.unsubscribe:
            case "overview":
                page.has_overview = False
            case "tail":
                page.forget_tail()
            case "redrive":
                page.redrives.clear()
            case name:
                raise bad_request(f"there is no subscription {name!r}")
        await self._stop_unused()

    # The overview.

    def _start_overview(self) -> None:
        if self._overview_task is None or self._overview_task.done():
            self._overview_task = asyncio.get_running_loop().create_task(self._run_overview())

    async def _run_overview(self) -> None:
        while True:
            await self._next_sample()
            try:
                message = await self._overview()
            except GatewayError as error:
                message = {"type": "error", "name": "overview", **error.document}
            for page in self._pages:
                if page.has_overview:
                    page.offer("overview", message)

    # Tails.

    async def _tail(self, page: LivePage, topics: Sequence[str], resume: ResumeFrom | None) -> None:
        page.forget_tail()
        page.starting = frozenset(topics)
        try:
            for topic in dict.fromkeys(topics):
                ticker = await self._ticker(topic)
                given = None if resume is None else resume.offsets.get(topic)
                if given is not None:
                    await self._catch_up(page, ticker, topic, given)
                page.topics |= {topic}  # no await since the ticker's position was compared
        finally:
            page.starting = frozenset()
        await self._stop_unused()

    async def _ticker(self, topic: str) -> TailTicker:
        ticker = self._tickers.get(topic)
        if ticker is not None:
            return ticker
        if len(self._tickers) >= TICKERS_MAX:
            raise too_many("too_many_tails", f"{TICKERS_MAX} topics are tailed; close some pages")
        ticker = TailTicker(self._node, self._decoder, topic, self._on_records, self._on_error)
        await ticker.start()
        known = self._tickers.get(topic)
        if known is not None:  # another page was faster
            return known
        self._tickers[topic] = ticker
        self._tasks[topic] = asyncio.get_running_loop().create_task(ticker.run())
        return ticker

    async def _catch_up(
        self, page: LivePage, ticker: TailTicker, topic: str, given: dict[str, str]
    ) -> None:
        """Send what was written since the page lost its connection, or the last of it.

        Reads until it has come as far as the ticker, which goes on meanwhile.
        """
        for _ in range(CATCH_UPS_MAX):
            ends = dict(ticker.positions)
            await self._read_to(page, topic, given, ends)
            given = {str(place.partition): str(end) for place, end in ends.items()}
            if ends == ticker.positions:
                return

    async def _read_to(
        self,
        page: LivePage,
        topic: str,
        given: dict[str, str],
        ends: dict[TopicPartition, Offset],
    ) -> None:
        ranges, dropped = list[ScanRange](), 0
        for place, end in ends.items():
            start = _offset(given.get(str(place.partition)), end)
            first = max(start, end - RECORDS_MAX)
            dropped += first - start
            ranges.append(ScanRange(place.partition, Offset(first), end))
        scan = MergedScan(Direction.FORWARD, ranges)
        reader = RangeReader(self._node, topic, _CHUNK_BYTES, RECORDS_MAX)
        records: list[bytes] = []
        while not scan.is_finished():
            await reader.fill(scan)
            records += await self._node.in_thread(lambda: self._read_all(scan, topic))
        page.offer_records(topic, records, dropped, 0.0)

    def _read_all(self, scan: MergedScan, topic: str) -> list[bytes]:
        """In a thread."""
        texts = []
        while (following := scan.next()) is not None:
            partition, record = following
            view = RecordView(self._decoder, TopicPartition(topic, partition), record)
            texts.append(_encode(view.document()))
        return texts

    def _on_records(self, topic: str, records: Sequence[bytes], dropped: int, rate: float) -> None:
        for page in self._pages:
            if topic in page.topics:
                page.offer_records(topic, records, dropped, rate)

    def _on_error(self, topic: str, error: dict[str, Any]) -> None:
        message = {"type": "error", "name": "tail", "topic": topic, "error": error}
        for page in self._pages:
            if topic in page.topics:
                page.offer(f"error {topic}", message)

    async def _stop_unused(self) -> None:
        used = {topic for page in self._pages for topic in page.topics | page.starting}
        stopping = []
        for topic in self._tickers.keys() - used:
            del self._tickers[topic]
            stopping.append(self._tasks.pop(topic))
        if self._overview_task is not None and not any(page.has_overview for page in self._pages):
            stopping.append(self._overview_task)
            self._overview_task = None
        for task in stopping:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def _read_request(text: str) -> LiveRequest:
    try:
        request = msgspec.json.decode(text, type=LiveRequest)
    except (msgspec.DecodeError, RecursionError) as error:
        raise bad_request(f"the message is not as expected: {error}", "invalid_body") from None
    if (request.subscribe is None) == (request.unsubscribe is None):
        raise bad_request("send subscribe or unsubscribe")
    return request


def _offset(text: str | None, end: Offset) -> Offset:
    if text is None or not text.isascii() or not text.isdecimal() or len(text) > _DIGITS_MAX:
        return end
    return Offset(min(int(text), end))
