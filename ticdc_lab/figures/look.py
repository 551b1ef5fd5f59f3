"""How every figure looks: plotly's template in light and dark, and how series differ.

Series take Okabe-Ito colours with a dash and a marker as second channel; heat maps take cividis. A partition has the
same look in every figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Literal

from ticdc_lab.figures.nested import Nested, plain

Theme = Literal["light", "dark"]

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A800")
"""Okabe and Ito's colours; their yellow is darkened so that a thin line shows on white, and black is left to text."""

WRONG, GREY = "#D55E00", "#888888"
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
MARKERS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "star", "hourglass")
PATTERNS = ("", "/", "x", "-", "|", "+", ".")
_CIVIDIS = (
    "#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838",
)  # fmt: skip
HEAT = tuple((k / 9, color) for k, color in enumerate(_CIVIDIS))
"""Of heat maps; spelt out, because plotly.js means another one by the name."""

FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
TEXT_PX = 13

TOOLS_LESS = (
    "sendDataToCloud", "sendChartToCloud", "editInChartStudio", "select2d", "lasso2d", "zoomIn2d", "zoomOut2d",
    "autoScale2d",
)  # fmt: skip

BARE: Mapping[str, Any] = MappingProxyType({"showgrid": False, "zeroline": False, "showline": False, "ticks": ""})
"""An axis with only its names drawn."""

CONFIG: Mapping[str, Any] = MappingProxyType(
    {"displaylogo": False, "responsive": True, "modeBarButtonsToRemove": list(TOOLS_LESS)}
)
"""Toolbar without upload and logo; pass it to ``show`` and ``to_html``."""

_INK = {
    "light": ("#ffffff", "#1d1d1f", "#dcdcdc", "#f0f1f3"),
    "dark": ("#16181c", "#e6e6e6", "#3a3d42", "#24272c"),
}
"""Paper, text, lines, and the head of a table."""


@cache
def template(theme: Theme = "light") -> Nested:
    """The plotly template of a theme, which figures share; ``themed`` switches one."""
    paper, ink, lines, shade = _INK[theme]
    axis = {
        "gridcolor": lines, "linecolor": lines, "zerolinecolor": lines, "automargin": True,
        "title": {"standoff": 8, "font": {"size": TEXT_PX}},
    }  # fmt: skip
    bar = {"title": {"font": {"size": TEXT_PX}}}
    body, head = ({"fill": {"color": fill}, "line": {"color": lines}} for fill in (paper, shade))
    told: Nested = plain(
        {
            "data": {
                "table": [{"cells": body, "header": head}],
                "heatmap": [{"colorbar": bar}],
                "icicle": [{"marker": {"colorbar": bar}}],
                "scatter": [{"marker": {"line": {"width": 0}}}],  # plotly frames markers of several sizes in white
            },
            "layout": {
                "paper_bgcolor": paper,
                "plot_bgcolor": paper,
                "font": {"family": FONT, "size": TEXT_PX, "color": ink},
                "title": {"x": 0, "xref": "container", "xanchor": "left", "font": {"size": 17}},
                "colorway": list(OKABE_ITO),
                "colorscale": {"sequential": HEAT},
                "xaxis": {**axis, "ticklabelstandoff": 5},  # none lies on the lowest name of the other axis
                "yaxis": axis,
                "hoverlabel": {"align": "left", "font": {"size": TEXT_PX}},
                "legend": {"font": {"size": TEXT_PX}},
                "sliderdefaults": {"bgcolor": lines, "activebgcolor": GREY, "bordercolor": GREY, "tickcolor": GREY},
                "updatemenudefaults": {"bgcolor": paper, "bordercolor": GREY, "font": {"color": ink}},
                "coloraxis": {"colorbar": bar},
                "modebar": {"remove": list(TOOLS_LESS), "bgcolor": "rgba(0,0,0,0)"},
            },
        }
    )
    return told


def look(k: int) -> dict[str, str]:
    """``color``, ``dash``, ``symbol`` and ``pattern`` of the k-th entity, the same in every figure."""
    return {
        "color": OKABE_ITO[k % len(OKABE_ITO)],
        "dash": DASHES[k % len(DASHES)],
        "symbol": MARKERS[k % len(MARKERS)],
        "pattern": PATTERNS[k % len(PATTERNS)],
    }


def hatch(shape: Any, *, size: int = 7, solidity: float = 0.2, color: str = "rgba(255,255,255,0.7)") -> dict[str, Any]:
    """Fine lines over the colour of bars, as second channel; ``shape`` is one of :data:`PATTERNS`."""
    return {"shape": shape, "fillmode": "overlay", "fgcolor": color, "size": size, "solidity": solidity}


def legend_above(y: float = 1.0) -> dict[str, Any]:
    """A legend in rows that grow upwards from so far above the foot of the plot."""
    return {"orientation": "h", "x": 0, "y": y, "yanchor": "bottom"}


def hatched(k: int) -> dict[str, Any]:
    """Marker of the k-th entity's bars: its colour, with a fine pattern as second channel."""
    style = look(k)
    lines = hatch(style["pattern"], size=8, solidity=0.15, color="rgba(255,255,255,0.75)")
    return {"color": style["color"], "line": {"width": 0}, "pattern": lines}
