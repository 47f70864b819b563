"""Charts of results, as SVG: a pair of bars for each figure, and one overview.

Drawn with text and rectangles only, so that a diff shows what changed. Colours follow the reader's
choice of light or dark; nothing is loaded.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from bench.figures import LIMIT, Figure
from bench.overview import OVERVIEW, OverviewLine

WIDTH: Final = 920
LABEL_WIDTH: Final = 390  # the names, left of the bars
VALUE_WIDTH: Final = 150  # the numbers, right of the bars
BARS_WIDTH: Final = WIDTH - LABEL_WIDTH - VALUE_WIDTH
TOP: Final = 64
BAR: Final = 13
PAIR: Final = 2 * BAR + 16
ROW: Final = 18
LABEL_CHARACTERS_MAX: Final = 52
RATIO_MIN: Final = 0.2  # of the overview's scale
RATIO_MAX: Final = 100.0  # beyond it, the label is "more than"
TICKS: Final = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)

SCALE: Final = (
    "Multiples of the peer (1x): larger is better; logarithmic; brown: the target was missed"
)
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
    """A figure with a target and a peer, as a multiple of the peer: above 1 is better."""

    name: str
    peer_name: str
    times_better: float | None  # None: the peer did not keep up
    is_met: bool


def bench_chart(title: str, figures: Sequence[Figure]) -> str | None:
    """A pair of bars for each figure with a peer; None if there is none."""
    pairs = [figure for figure in figures if figure.peer is not None]
    if not pairs:
        return None
    parts = [_title(title), _legend()]
    for row, figure in enumerate(pairs):
        top = TOP + row * PAIR
        parts += _pair(figure, top)
    return _document(TOP + len(pairs) * PAIR + 8, title, parts)


def overview_chart(
    benches: Mapping[str, Sequence[Figure]], lines: Sequence[OverviewLine] = OVERVIEW
) -> str:
    """The claims that matter most, grouped by peer, on one labelled logarithmic scale."""
    title = "Penstock compared with its peers, measured in the same run"
    by_peer: dict[str, list[Claim]] = {}
    for line in lines:
        for figure in benches.get(line.bench, ()):
            if figure.name == line.figure and (claim := _claim_of(figure, line.label)):
                by_peer.setdefault(claim.peer_name, []).append(claim)
    parts = [_title(title), _text(12, 42, SCALE, kind="quiet")]
    top = float(TOP)
    for peer, claims in by_peer.items():
        heading = f"compared with {peer or 'a peer'}"
        parts.append(_text(LABEL_WIDTH - 10, top + 11, heading, kind="head", anchor="end"))
        top += ROW
        for claim in claims:
            parts += _claim(claim, top)
            top += ROW
    return _document(top + 12, title, [*_axis(top), *parts])


def _claim(claim: Claim, top: float) -> list[str]:
    """The bar starts at the peer: to the right is better, to the left is worse."""
    label = _text(LABEL_WIDTH - 10, top + 11, _cut(claim.name), anchor="end")
    one = LABEL_WIDTH + _ratio_width(1.0)
    if claim.times_better is None:
        return [label, _text(one + 8, top + 11, "the peer did not keep up", kind="quiet")]
    end = LABEL_WIDTH + _ratio_width(claim.times_better)
    kind = "ours" if claim.is_met else "short"
    is_beyond = claim.times_better > RATIO_MAX
    label_text = f"more than {RATIO_MAX:.0f}x" if is_beyond else f"{claim.times_better:.2f}x"
    return [
        label,
        _bar(kind, min(one, end), top, abs(end - one)),
        _text(max(one, end) + 8, top + 11, label_text, kind="value"),
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
    """A number with four significant digits, and without an exponent if it is large."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _claim_of(figure: Figure, label: str) -> Claim | None:
    """None without a target, a peer or a ratio."""
    if figure.is_met is None or not figure.ratio or figure.peer_name == LIMIT:
        return None
    higher_is_better = figure.target.startswith(">=")
    times = figure.ratio if higher_is_better else 1 / figure.ratio
    return Claim(label, figure.peer_name, times if figure.peer_kept_up else None, figure.is_met)


def _ratio_width(times: float) -> float:
    """The width on the overview's logarithmic scale."""
    inside = min(max(times, RATIO_MIN), RATIO_MAX)
    return BARS_WIDTH * math.log(inside / RATIO_MIN) / math.log(RATIO_MAX / RATIO_MIN)


def _pair(figure: Figure, top: float) -> list[str]:
    assert figure.peer is not None
    maximum = max(figure.ours, figure.peer) or 1.0
    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}x"
    if not figure.peer_kept_up:
        ratio = "the peer did not keep up"
    parts = [_text(LABEL_WIDTH - 10, top + BAR, _cut(figure.name), anchor="end")]
    parts.append(_text(LABEL_WIDTH - 10, top + 2 * BAR, ratio, kind="quiet", anchor="end"))
    for index, (kind, value) in enumerate((("ours", figure.ours), ("peer", figure.peer))):
        width = BARS_WIDTH * value / maximum
        at = top + index * BAR
        parts.append(_bar(kind, LABEL_WIDTH, at, width))
        number = f"{shown(value)} {figure.unit}"
        parts.append(_text(LABEL_WIDTH + width + 8, at + BAR - 3, number, kind="value"))
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
