"""Plots as SVG text: lines over time, and bars. Drawn with shapes and text only.

Colours follow the reader's choice of light or dark; nothing is loaded from elsewhere.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

WIDTH: Final = 760
HEIGHT: Final = 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 20, 52, 44
_ROW: Final = 26
_LABEL_WIDTH: Final = 300
_COLOURS: Final = ("#0f766e", "#b45309", "#4f46e5", "#be185d", "#4d7c0f", "#64748b")
_STYLE: Final = """
  text { font: 12px system-ui, sans-serif; fill: #1f2933; }
  .title { font-size: 14px; font-weight: 600; } .quiet { fill: #5f6c7b; }
  .grid { stroke: #d5dce3; stroke-width: 1; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .quiet { fill: #9aa7b4; } .grid { stroke: #30363d; }
  }"""

Points = Sequence[tuple[float, float]]


def line_plot(title: str, x_label: str, y_label: str, lines: Mapping[str, Points]) -> str:
    """A line for each name."""
    points = [point for line in lines.values() for point in line] or [(0.0, 0.0)]
    x_low, x_high = min(x for x, _ in points), max(x for x, _ in points)
    y_high = max(1e-9, *(y for _, y in points))
    wide, high = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        share = (x - x_low) / (x_high - x_low) if x_high > x_low else 0.0
        return _LEFT + share * wide, _TOP + high * (1 - y / y_high)

    parts = [_text(_LEFT, 18, title, "title"), _text(_LEFT, 36, y_label, "quiet")]
    for step in range(5):
        y = _TOP + high * step / 4
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(_text(_LEFT - 6, y + 4, _number(y_high * (4 - step) / 4), "quiet", "end"))
    for step in range(5):
        x = _LEFT + wide * step / 4
        label = _number(x_low + (x_high - x_low) * step / 4)
        parts.append(_text(x, HEIGHT - _BOTTOM + 16, label, "quiet", "middle"))
    parts.append(_text(WIDTH - _RIGHT, HEIGHT - 8, x_label, "quiet", "end"))
    for index, (name, line) in enumerate(lines.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in line))
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>')
        x = _LEFT + index * wide / max(1, len(lines))
        parts.append(f'<rect x="{x}" y="{HEIGHT - 18}" width="10" height="10" fill="{colour}"/>')
        parts.append(_text(x + 14, HEIGHT - 8, name))
    return _document(HEIGHT, title, parts)


def bar_plot(title: str, unit: str, bars: Mapping[str, float]) -> str:
    """A bar for each name."""
    high = max(1e-9, *bars.values()) if bars else 1.0
    wide = WIDTH - _LABEL_WIDTH - 110
    parts = [_text(12, 18, title, "title"), _text(12, 36, unit, "quiet")]
    for index, (name, value) in enumerate(bars.items()):
        y = _TOP + index * _ROW
        size = wide * value / high
        parts.append(_text(_LABEL_WIDTH - 8, y + 12, name, anchor="end"))
        colour = _COLOURS[0]
        parts.append(
            f'<rect x="{_LABEL_WIDTH}" y="{y}" width="{size:.1f}" height="15" fill="{colour}"/>'
        )
        parts.append(_text(_LABEL_WIDTH + size + 6, y + 12, _number(value), "quiet"))
    return _document(_TOP + len(bars) * _ROW + 10, title, parts)


def _number(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1000:,.0f} k" if value < 10_000_000 else f"{value / 1e6:,.0f} M"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _document(height: int, title: str, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        f' aria-label="{escape(title)}">'
    )
    return "\n".join([head, f"<style>{_STYLE}</style>", *parts, "</svg>", ""])
