# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Line charts with logarithmic axes, side by side in one SVG; readable on light and on dark pages."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as xml

__all__ = ["Chart", "svg"]

WIDTH, HEIGHT = 380, 250
"""Pixels of one chart."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 40, 40
_LEGEND = 28
# Okabe and Ito's colours, which the colour-blind tell apart.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_STYLE = """
text { font: 11px sans-serif; fill: #24292f }
.title { font-weight: bold }
.grid { stroke: #d0d7de }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .grid { stroke: #3d444d } }
"""


@dataclass(frozen=True)
class Chart:
    """Points (x, y), all positive, by the name of their line."""

    title: str
    x_label: str
    y_label: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True)
class _Scale:
    """Values to pixels, by their logarithms."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        span = math.log(self.high / self.low) or 1.0
        return self.start + (self.stop - self.start) * math.log(value / self.low) / span


def svg(charts: Sequence[Chart], columns: int = 2) -> str:
    """The charts in rows of ``columns``, with one legend above them.

    Raises ValueError for a chart without points, or with one that has no logarithm.
    """
    names = list(dict.fromkeys(name for chart in charts for name, line in chart.lines.items() if line))
    colours = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(names)}
    columns = min(columns, len(charts))
    rows = math.ceil(len(charts) / columns)
    size = (columns * WIDTH, _LEGEND + rows * HEIGHT)
    root = xml.Element(
        "svg", xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {size[0]} {size[1]}", width=str(size[0])
    )
    xml.SubElement(root, "style").text = _STYLE
    for i, name in enumerate(names):
        at = _LEFT + 120 * i
        _line(root, (at, 16), (at + 20, 16), stroke=colours[name], width=2)
        _text(root, at + 25, 20, name)
    for i, chart in enumerate(charts):
        x, y = (i % columns) * WIDTH, _LEGEND + (i // columns) * HEIGHT
        _draw(xml.SubElement(root, "g", transform=f"translate({x} {y})"), chart, colours)
    xml.indent(root)
    return xml.tostring(root, encoding="unicode") + "\n"


def _draw(group: xml.Element, chart: Chart, colours: Mapping[str, str]) -> None:
    points = [point for line in chart.lines.values() for point in line]
    if not points or any(value <= 0 for point in points for value in point):
        raise ValueError(f"chart {chart.title!r}: points must be there, and positive")
    xs, ys = sorted({p[0] for p in points}), [p[1] for p in points]
    y_ticks = _ticks(min(ys), max(ys))
    across = _Scale(xs[0], xs[-1], _LEFT, WIDTH - _RIGHT)
    up = _Scale(min(y_ticks[0], *ys), max(y_ticks[-1], *ys), HEIGHT - _BOTTOM, _TOP)
    for tick in y_ticks:
        _line(group, (_LEFT, up(tick)), (WIDTH - _RIGHT, up(tick)), style="grid")
        _text(group, _LEFT - 5, up(tick) + 4, f"{tick:g}", anchor="end")
    last = -math.inf
    for x in xs:
        if across(x) - last >= 34:  # the others have no room for their number
            last = across(x)
            _text(group, last, HEIGHT - _BOTTOM + 15, _short(x), anchor="middle")
    _text(group, 8, 14, chart.title, style="title")
    _text(group, (_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 8, chart.x_label, anchor="middle")
    _text(group, 8, 28, chart.y_label)
    for name, line in chart.lines.items():
        places = [(across(x), up(y)) for x, y in sorted(line)]
        track = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        shape = {"points": track, "fill": "none", "stroke": colours.get(name, ""), "stroke-width": "2"}
        xml.SubElement(group, "polyline", shape)
        for x, y in places:
            xml.SubElement(group, "circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r="2.5", fill=colours[name])


def _ticks(low: float, high: float) -> list[float]:
    """Powers of ten around the values; with 2 and 5 between them where there are few."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = (1, 2, 5) if last - first <= 3 else (1,)
    found = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    inner = [t for t in found if low <= t <= high]
    below, above = (t for t in found if t < low), (t for t in found if t > high)
    return [*[max(below, default=low)], *inner, *[min(above, default=high)]]


def _short(value: float) -> str:
    """Powers of 1024 as Ki and Mi."""
    for unit, name in ((1 << 20, "Mi"), (1 << 10, "Ki")):
        if value >= unit and value % unit == 0:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def _line(
    group: xml.Element,
    start: tuple[float, float],
    stop: tuple[float, float],
    stroke: str = "",
    width: float = 1,
    style: str = "",
) -> None:
    shape = {"x1": f"{start[0]:.1f}", "y1": f"{start[1]:.1f}", "x2": f"{stop[0]:.1f}", "y2": f"{stop[1]:.1f}"}
    look = {"stroke": stroke, "stroke-width": f"{width:g}"} if stroke else {"class": style}
    xml.SubElement(group, "line", {**shape, **look})


def _text(group: xml.Element, x: float, y: float, text: str, anchor: str = "start", style: str = "") -> None:
    shape = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor, **({"class": style} if style else {})}
    xml.SubElement(group, "text", shape).text = text
