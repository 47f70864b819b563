"""Links between simulated hosts, each direction separately: open, cut or clogged."""

from __future__ import annotations

from typing import Any, TypeAlias

from penstock.model import NodeId

Link: TypeAlias = tuple[NodeId, NodeId]


class Network:
    """What is sent over a cut link is lost; over a clogged one it waits until that opens."""

    def __init__(self) -> None:
        self._cut: dict[Link, int] = {}  # how many faults cut the link
        self._clogged: dict[Link, list[Any]] = {}

    def is_cut(self, link: Link) -> bool:
        return link in self._cut

    def cut(self, links: list[Link]) -> None:
        for link in links:
            self._cut[link] = self._cut.get(link, 0) + 1

    def restore(self, links: list[Link]) -> None:
        for link in links:
            count = self._cut.pop(link, 0) - 1
            if count > 0:
                self._cut[link] = count

    def clog(self, link: Link) -> None:
        self._clogged.setdefault(link, [])

    def waiting_on(self, link: Link) -> list[Any] | None:
        """Where to put what is sent over a clogged link."""
        return self._clogged.get(link)

    def unclog(self, link: Link) -> list[Any]:
        return self._clogged.pop(link, [])

    def restore_among(self, node_ids: list[NodeId]) -> list[Any]:
        """Open every link between these nodes; what waited on them."""
        waiting = []
        for source in node_ids:
            for target in node_ids:
                self._cut.pop((source, target), None)
                waiting += self.unclog((source, target))
        return waiting
