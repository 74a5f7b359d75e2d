# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Horizontal bar charts of ratios, side by side in one SVG; readable on light and on dark pages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as xml

__all__ = ["Bars", "svg"]

WIDTH = 430
"""Pixels of one chart."""
_LABELS, _RIGHT, _TOP, _BAR, _GAP = 150, 40, 44, 7, 5
# Okabe and Ito's colours, which readers with colour blindness can tell apart.
_COLOURS = ("#0072b2", "#e69f00", "#009e73")
_STYLE = """
text { font: 11px sans-serif; fill: #24292f }
.title { font-weight: bold }
.one { stroke: #57606a }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .one { stroke: #8b949e } }
"""


@dataclass(frozen=True)
class Bars:
    """Ratios by case, by the name of their series. A line marks 1.0, where both contenders are equally fast."""

    title: str
    series: Mapping[str, Mapping[str, float]]

    @property
    def cases(self) -> list[str]:
        """The cases of all series, in the order of the longest series."""
        longest_first = sorted(self.series.values(), key=len, reverse=True)
        return list(dict.fromkeys(case for values in longest_first for case in values))

    @property
    def height(self) -> int:
        """Pixels."""
        return _TOP + len(self.cases) * (len(self.series) * _BAR + _GAP) + 8


def svg(charts: Sequence[Bars]) -> str:
    """The charts side by side. Raises ValueError for a chart without bars."""
    if any(not chart.cases for chart in charts):
        raise ValueError("a chart needs bars")
    size = (WIDTH * len(charts), max(chart.height for chart in charts))
    root = xml.Element(
        "svg", xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {size[0]} {size[1]}", width=f"{size[0]}"
    )
    xml.SubElement(root, "style").text = _STYLE
    for number, chart in enumerate(charts):
        _draw(xml.SubElement(root, "g", transform=f"translate({number * WIDTH} 0)"), chart)
    xml.indent(root)
    return xml.tostring(root, encoding="unicode") + "\n"


def _draw(group: xml.Element, chart: Bars) -> None:
    largest = max(value for values in chart.series.values() for value in values.values())
    scale = (WIDTH - _LABELS - _RIGHT) / max(largest, 1.0)
    _text(group, (8, 14), chart.title, style="title")
    for number, name in enumerate(chart.series):
        left = _LABELS + 110 * number
        _bar(group, (left, 24), (20, _BAR), _COLOURS[number])
        _text(group, (left + 25, 31), name)
    step = len(chart.series) * _BAR + _GAP
    for at, case in enumerate(chart.cases):
        top = _TOP + at * step
        _text(group, (_LABELS - 6, top + step / 2 + 1), case, anchor="end")
        for number, values in enumerate(chart.series.values()):
            if case in values:
                _bar(group, (_LABELS, top + number * _BAR), (values[case] * scale, _BAR - 1), _COLOURS[number])
    x = f"{_LABELS + scale:.1f}"
    _text(group, (_LABELS + scale - 3, _TOP - 5), "1", anchor="end")
    _text(group, (_LABELS + largest * scale, _TOP - 5), f"{largest:.2f}", anchor="middle")
    line = {"x1": x, "x2": x, "y1": str(_TOP - 4), "y2": str(chart.height - 8), "class": "one"}
    xml.SubElement(group, "line", line)


def _bar(group: xml.Element, at: tuple[float, float], size: tuple[float, float], colour: str) -> None:
    shape = {"x": f"{at[0]:.1f}", "y": f"{at[1]:.1f}", "width": f"{size[0]:.1f}", "height": f"{size[1]:.1f}"}
    xml.SubElement(group, "rect", shape, fill=colour)


def _text(group: xml.Element, at: tuple[float, float], text: str, anchor: str = "start", style: str = "") -> None:
    shape = {"x": f"{at[0]:.1f}", "y": f"{at[1]:.1f}", "text-anchor": anchor, **({"class": style} if style else {})}
    xml.SubElement(group, "text", shape).text = text
