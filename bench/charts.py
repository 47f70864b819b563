"""Charts of what a run found, as SVG: pairs of bars, ours and the peer's, and one overview.

Drawn with text and rectangles only, so that a diff shows what changed. Colours follow the reader's
own choice of light or dark; nothing is loaded from anywhere.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from bench.figures import LIMIT, Figure

WIDTH: Final = 920
LABEL_WIDTH: Final = 390  # the names, to the left of the bars
VALUE_WIDTH: Final = 150  # the numbers, to the right of them
BARS_WIDTH: Final = WIDTH - LABEL_WIDTH - VALUE_WIDTH
TOP: Final = 64
BAR: Final = 13
PAIR: Final = 2 * BAR + 16
ROW: Final = 18
LABEL_CHARACTERS_MAX: Final = 52
RATIO_LEAST: Final = 0.2  # where the overview's scale begins
RATIO_MOST: Final = 100.0  # and where it ends: beyond, the number says only "more than"
TICKS: Final = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)

SCALE: Final = "Times as good as the peer (1x), logarithmic scale; brown: the target was missed"
_STYLE: Final = """
  text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2933; }
  .title { font-size: 15px; font-weight: 600; }
  .quiet { fill: #5f6c7b; }
  .value { font-variant-numeric: tabular-nums; }
  .ours { fill: #0f766e; } .peer { fill: #a3b1bf; } .short { fill: #b45309; }
  .head { font-weight: 600; }
  .line { stroke: #5f6c7b; stroke-width: 1; } .grid { stroke: #d5dce3; stroke-width: 1; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .quiet { fill: #9aa7b4; } .line { stroke: #9aa7b4; }
    .grid { stroke: #30363d; }
    .ours { fill: #2dd4bf; } .peer { fill: #54616e; } .short { fill: #f59e0b; }
  }"""


@dataclass(frozen=True, slots=True)
class Claim:
    """A figure that has a target and a peer, seen as "so many times as good as the peer"."""

    name: str
    peer_name: str
    times_better: float | None  # None: the peer did not keep up
    holds: bool


def bench_chart(title: str, figures: Sequence[Figure]) -> str | None:
    """A pair of bars for each figure with a peer; None when there is none."""
    pairs = [figure for figure in figures if figure.peer is not None]
    if not pairs:
        return None
    parts = [_title(title), _legend()]
    for row, figure in enumerate(pairs):
        top = TOP + row * PAIR
        parts += _pair(figure, top)
    return _document(TOP + len(pairs) * PAIR + 8, title, parts)


def overview_chart(benches: Mapping[str, Sequence[Figure]]) -> str:
    """Every claim of every bench beside its peer, by peer, on one labelled logarithmic scale."""
    title = "Penstock beside its peers, measured in the same run"
    by_peer: dict[str, list[Claim]] = {}
    for name, figures in benches.items():
        for claim in _claims(name, figures):
            by_peer.setdefault(claim.peer_name, []).append(claim)
    parts = [_title(title), _text(12, 42, SCALE, kind="quiet")]
    top = float(TOP)
    for peer, claims in by_peer.items():
        parts.append(
            _text(
                LABEL_WIDTH - 10, top + 11, f"beside {peer or 'a peer'}", kind="head", anchor="end"
            )
        )
        top += ROW
        for claim in claims:
            parts += _claim(claim, top)
            top += ROW
    return _document(top + 12, title, [*_axis(top), *parts])


def _claim(claim: Claim, top: float) -> list[str]:
    """The bar begins at the peer: to the right is better, to the left is worse."""
    label = _text(LABEL_WIDTH - 10, top + 11, _cut(claim.name), anchor="end")
    one = LABEL_WIDTH + _ratio_width(1.0)
    if claim.times_better is None:
        return [label, _text(one + 8, top + 11, "the peer did not keep up", kind="quiet")]
    end = LABEL_WIDTH + _ratio_width(claim.times_better)
    kind = "ours" if claim.holds else "short"
    is_beyond = claim.times_better > RATIO_MOST
    told = f"more than {RATIO_MOST:.0f}x" if is_beyond else f"{claim.times_better:.2f}x"
    return [
        label,
        _bar(kind, min(one, end), top, abs(end - one)),
        _text(max(one, end) + 8, top + 11, told, kind="value"),
    ]


def _axis(bottom: float) -> list[str]:
    parts = []
    for tick in TICKS:
        at = LABEL_WIDTH + _ratio_width(tick)
        kind = "line" if tick == 1.0 else "grid"
        parts.append(
            f'<line class="{kind}" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP - 4}" y2="{bottom:.0f}"/>'
        )
        parts.append(_text(at, TOP - 8, f"{tick:g}x", kind="quiet", anchor="middle"))
    return parts


def shown(value: float) -> str:
    """As people read numbers: four digits that count, and no exponent for the large ones."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _claims(bench: str, figures: Sequence[Figure]) -> list[Claim]:
    found = []
    for figure in figures:
        if figure.holds is None or not figure.ratio or figure.peer_name == LIMIT:
            continue
        higher_is_better = figure.target.startswith(">=")
        times = figure.ratio if higher_is_better else 1 / figure.ratio
        shown_times = times if figure.peer_kept_up else None
        found.append(Claim(f"{bench}: {figure.name}", figure.peer_name, shown_times, figure.holds))
    return found


def _ratio_width(times: float) -> float:
    """On the overview's logarithmic scale."""
    inside = min(max(times, RATIO_LEAST), RATIO_MOST)
    return BARS_WIDTH * math.log(inside / RATIO_LEAST) / math.log(RATIO_MOST / RATIO_LEAST)


def _pair(figure: Figure, top: float) -> list[str]:
    assert figure.peer is not None
    most = max(figure.ours, figure.peer) or 1.0
    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}x"
    if not figure.peer_kept_up:
        ratio = "the peer did not keep up"
    parts = [_text(LABEL_WIDTH - 10, top + BAR, _cut(figure.name), anchor="end")]
    parts.append(_text(LABEL_WIDTH - 10, top + 2 * BAR, ratio, kind="quiet", anchor="end"))
    for index, (kind, value) in enumerate((("ours", figure.ours), ("peer", figure.peer))):
        width = BARS_WIDTH * value / most
        at = top + index * BAR
        parts.append(_bar(kind, LABEL_WIDTH, at, width))
        told = f"{shown(value)} {figure.unit}"
        parts.append(_text(LABEL_WIDTH + width + 8, at + BAR - 3, told, kind="value"))
    return parts


def _legend() -> str:
    left = LABEL_WIDTH
    return "".join(
        (
            _bar("ours", left, 36, 12),
            _text(left + 18, 47, "Penstock"),
            _bar("peer", left + 100, 36, 12),
            _text(left + 118, 47, "peer, in the same run"),
        )
    )


def _title(text: str) -> str:
    return _text(12, 24, text, kind="title")


def _bar(kind: str, left: float, top: float, width: float) -> str:
    return (
        f'<rect class="{kind}" x="{left:.1f}" y="{top:.1f}" width="{max(width, 1.5):.1f}" '
        f'height="{BAR - 1}" rx="2"/>'
    )


def _text(left: float, baseline: float, text: str, *, kind: str = "", anchor: str = "start") -> str:
    return (
        f'<text class="{kind}" x="{left:.1f}" y="{baseline:.1f}" text-anchor="{anchor}">'
        f"{escape(text)}</text>"
    )


def _cut(text: str) -> str:
    return text if len(text) <= LABEL_CHARACTERS_MAX else text[: LABEL_CHARACTERS_MAX - 1] + "…"


def _document(height: float, title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'width="{WIDTH}" height="{height:.0f}" role="img" aria-label="{escape(title)}">\n'
        f"<style>{_STYLE}\n</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )
