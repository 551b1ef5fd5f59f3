"""A figure as plain settings: what plotly draws, as nested dicts, without plotly's own checks.

A figure of a report has thousands of settings, most of them in the frames of its slider. Plotly's classes look at each
one of them and copy it whenever it moves; here they are written down once and become JSON once. :meth:`Figure.go` gives
plotly's own figure, checked, on request.
"""

from __future__ import annotations

import html
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ticdc_lab.errors import SetupError
from ticdc_lab.figures.in_notebook import mime_bundle, open_page
from ticdc_lab.figures.nested import Nested, as_json, plain, put

if TYPE_CHECKING:
    import plotly.graph_objects as go

MIME = "application/vnd.plotly.v1+json"
"""What JupyterLab and others draw by themselves."""


class Trace(Nested):
    """What is drawn with one look: data, and how."""

    __slots__ = ()

    def __init__(self, **settings: Any) -> None:
        super().__init__(type=type(self).__name__.lower())
        put(self, settings)


class Scatter(Trace):
    """Points, lines and texts."""


class Bar(Trace):
    """Bars."""


class Heatmap(Trace):
    """Cells of a grid, coloured by a number."""


class Table(Trace):
    """Rows of texts."""


class Icicle(Trace):
    """Nested boxes."""


def frame(name: str, data: Iterable[Mapping[str, Any]], **settings: Any) -> Nested:
    """One position of a slider: the traces that differ, and in ``layout`` what else does."""
    made = Nested({"name": name, "data": [t if isinstance(t, Nested) else plain(t) for t in data]})
    put(made, settings)
    return made


class GridPlace(NamedTuple):
    """The axes of a cell in a grid of plots, as traces name them."""

    x: str = "x"
    y: str = "y"


class Figure:
    """What is drawn, and how: traces, a layout, and frames of a slider.

    ``data``: traces, one trace, or a figure whose settings are copied. ``layout``: settings of plotly's layout.
    ``grid``: row and column of each plot to its axes, where there are several. ``data``, ``layout``, ``frames``: as
    plotly's JSON has them; nested dicts whose names are attributes, too: ``fig.layout.title.text``.

    It shows itself in a notebook. Nothing is checked: :meth:`go` does that.

    Examples
    --------
    >>> fig = Figure(Scatter(y=[1, 2])).update_layout(title_text="two points")
    >>> fig.layout.title.text
    'two points'
    >>> fig.go().data[0].y
    (1, 2)
    """

    def __init__(
        self, data: Figure | Nested | Iterable[Nested] = (), layout: Mapping[str, Any] | None = None,
        *, grid: Mapping[tuple[int, int], GridPlace] | None = None,
    ) -> None:  # fmt: skip
        of = data if isinstance(data, Figure) else None
        self.data: list[Nested]
        if isinstance(data, Figure):
            self.data = [plain(trace) for trace in data.data]
        else:
            traces = [data] if isinstance(data, Nested) else data
            self.data = [t if isinstance(t, Nested) else plain(t) for t in traces]
        self.layout = Nested()
        put(self.layout, layout if layout is not None else of.layout if of else {})
        self.frames: list[Nested] = list(of.frames) if of else []
        self.grid: dict[tuple[int, int], GridPlace] = dict(grid or (of.grid if of else {}))

    def add_trace(self, trace: Nested, row: int | None = None, col: int | None = None) -> Figure:
        """Draw one more, in a cell of the grid."""
        if row is not None and col is not None:
            trace["xaxis"], trace["yaxis"] = self.grid[row, col]
        self.data.append(trace)
        return self

    def add_traces(self, traces: Iterable[Nested]) -> Figure:
        """Draw more."""
        self.data += traces
        return self

    def update_layout(self, **settings: Any) -> Figure:
        """Set something of the layout; an underscore leads into what is nested: ``margin_t``."""
        put(self.layout, settings)
        return self

    def update_xaxes(self, row: int | None = None, col: int | None = None, **settings: Any) -> Figure:
        """Set something of all x axes, or of a cell's."""
        return self._update_axes("x", row, col, settings)

    def update_yaxes(self, row: int | None = None, col: int | None = None, **settings: Any) -> Figure:
        """Set something of all y axes, or of a cell's."""
        return self._update_axes("y", row, col, settings)

    def _update_axes(self, letter: str, row: int | None, col: int | None, settings: Mapping[str, Any]) -> Figure:
        names = {f"{letter}axis", *(name for name in self.layout if name.startswith(f"{letter}axis"))}
        if row is not None or col is not None:
            names = {
                f"{letter}axis{getattr(place, letter)[1:]}"
                for (r, c), place in self.grid.items()
                if row in (None, r) and col in (None, c)
            }
        for name in names:
            put(self.layout.setdefault(name, Nested()), settings)
        return self

    def add_annotation(self, **settings: Any) -> Figure:
        """Write a text somewhere."""
        return self._add("annotations", settings)

    def update_annotations(self, **settings: Any) -> Figure:
        """Set something of all texts."""
        for annotation in self.layout.annotations or ():
            put(annotation, settings)
        return self

    def add_shape(self, **settings: Any) -> Figure:
        """Draw a line or a box somewhere."""
        return self._add("shapes", settings)

    def _add(self, kind: str, settings: Mapping[str, Any]) -> Figure:
        made = Nested()
        put(made, settings)
        self.layout[kind] = [*(self.layout.get(kind) or ()), made]
        return self

    def add_vline(self, x: Any, **settings: Any) -> Figure:
        """Draw a line from the foot of a plot to its top; ``row`` and ``col`` name the plot, else it is in each."""
        return self._add_spanning("x", {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1}, **settings)

    def add_hline(self, y: Any, **settings: Any) -> Figure:
        """Draw a line over the width of a plot."""
        return self._add_spanning("y", {"type": "line", "x0": 0, "x1": 1, "y0": y, "y1": y}, **settings)

    def add_vrect(self, x0: Any, x1: Any, **settings: Any) -> Figure:
        """Shade from the foot of a plot to its top."""
        return self._add_spanning("x", {"type": "rect", "x0": x0, "x1": x1, "y0": 0, "y1": 1}, **settings)

    def add_hrect(self, y0: Any, y1: Any, **settings: Any) -> Figure:
        """Shade over the width of a plot."""
        return self._add_spanning("y", {"type": "rect", "x0": 0, "x1": 1, "y0": y0, "y1": y1}, **settings)

    def _add_spanning(
        self, letter: str, shape: dict[str, Any], *, row: int | None = None, col: int | None = None,
        annotation_text: str = "", **settings: Any,
    ) -> Figure:  # fmt: skip
        """Draw in one plot or in each in which there is something; a text is at the right end of a line, on top."""
        for place in self._places(row, col):
            refs = {"xref": place.x, "yref": f"{place.y} domain"}
            refs = refs if letter == "x" else {"xref": f"{place.x} domain", "yref": place.y}
            self.add_shape(**shape, **settings, **refs)
            if annotation_text:
                anchors = ("left", "top") if letter == "x" else ("right", "bottom")
                at = {"x": shape["x1"], "y": shape["y1"], "xanchor": anchors[0], "yanchor": anchors[1]}
                self.add_annotation(text=annotation_text, showarrow=False, **at, **refs)
        return self

    def _places(self, row: int | None, col: int | None) -> list[GridPlace]:
        if not self.grid:
            return [GridPlace()]
        filled = {(t.get("xaxis", "x"), t.get("yaxis", "y")) for t in self.data}
        return [p for at, p in self.grid.items() if tuple(p) in filled and (row is None or at == (row, col))]

    def parts(self) -> Iterator[tuple[str, Any]]:
        """Give plotly's arguments, by name."""
        yield "data", self.data
        yield "layout", self.layout
        if self.frames:
            yield "frames", self.frames

    def to_dict(self) -> dict[str, Any]:
        """Give all settings; the same objects that the figure has."""
        return dict(self.parts())

    def to_json(self) -> str:
        """Give all settings as plotly's JSON."""
        return as_json(self.to_dict())

    def go(self) -> go.Figure:
        """Give plotly's own figure, every setting checked.

        Raises ValueError: a setting is none of plotly's. SetupError: plotly is not installed; nothing else needs it.
        """
        try:
            import plotly.graph_objects as go
        except ImportError as error:
            raise SetupError(
                f"plotly's own figure needs plotly: {error}.", hint="Install it: python -m pip install 'plotly>=6'"
            ) from error

        return go.Figure(self.to_dict())

    def show(self) -> None:
        """Show it: in the notebook, or from a script in a browser."""
        notebook = sys.modules.get("IPython.display")  # there where a kernel runs; figures need none
        if notebook is not None:
            notebook.display(self)
        else:
            open_page(self)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return mime_bundle(self)

    @property
    def finding(self) -> str:
        """Its title in plain text; empty where it has no title."""
        return html.unescape(str((self.layout.meta or {}).get("finding", "")))

    def __repr__(self) -> str:
        """Its finding, as far as it has one."""
        return self.finding or "a figure"


def subplots(
    rows: int, cols: int, *, spans: Sequence[Sequence[int]] = (), row_heights: Sequence[float] = (),
    column_widths: Sequence[float] = (), vertical_spacing: float = 0.0, horizontal_spacing: float = 0.0,
    shared_xaxes: bool = False, shared_yaxes: bool = False, titles: Sequence[str] = (),
) -> Figure:  # fmt: skip
    """A figure of several plots in rows and columns.

    ``rows``, ``cols``: how many; both are counted from 1, from the top left. ``spans``: for each row the columns that
    each of its cells takes; 0 is none. By default each takes one. ``row_heights``, ``column_widths``: their shares; by
    default all are alike. ``vertical_spacing``, ``horizontal_spacing``: between them, as shares of the whole.
    ``shared_xaxes``: whether plots above each other have the same x axis, written below the lowest. ``shared_yaxes``:
    whether plots beside each other have the same y axis, written at the left. ``titles``: a text above each plot.
    """
    heights = _shares(row_heights or [1] * rows, vertical_spacing)
    widths = _shares(column_widths or [1] * cols, horizontal_spacing)
    fig, n = Figure(), 0
    for r in range(rows):
        for c in range(cols):
            span = spans[r][c] if spans else 1
            if not span:
                continue
            n += 1
            place = GridPlace(f"x{n if n > 1 else ''}", f"y{n if n > 1 else ''}")
            fig.grid[r + 1, c + 1] = place
            across = [widths[c][0], widths[c + span - 1][1]]
            down = [max(0.0, 1 - heights[r][1]), min(1.0, 1 - heights[r][0])]
            _set_axis(fig, "x", place, across)
            _set_axis(fig, "y", place, down)
            if titles and titles[n - 1 : n] != [""]:
                _title(fig, titles[n - 1], sum(across) / 2, down[1])
    for (r, c), place in fig.grid.items():
        if shared_xaxes and (spans[r - 1][c - 1] if spans else 1) == 1:
            _follow(fig, "x", place, fig.grid[max(at for at in fig.grid if at[1] == c)])
        if shared_yaxes:
            _follow(fig, "y", place, fig.grid[r, 1])
    return fig


def _shares(shares: Sequence[float], gap: float) -> list[tuple[float, float]]:
    """Begin and end of each."""
    whole = 1 - gap * (len(shares) - 1)
    sizes = [whole * share / sum(shares) for share in shares]
    begins = [sum(sizes[:i]) + i * gap for i in range(len(sizes))]
    return [(begin, begin + size) for begin, size in zip(begins, sizes, strict=True)]


def _set_axis(fig: Figure, letter: str, place: GridPlace, domain: list[float]) -> None:
    own, other = (place.x, place.y) if letter == "x" else (place.y, place.x)
    fig.layout[f"{letter}axis{own[1:]}"] = Nested(anchor=other, domain=domain)


def _follow(fig: Figure, letter: str, place: GridPlace, first: GridPlace) -> None:
    own, leading = (getattr(p, letter) for p in (place, first))
    if own != leading:
        put(fig.layout[f"{letter}axis{own[1:]}"], {"matches": leading, "showticklabels": False})


def _title(fig: Figure, text: str, x: float, y: float) -> None:
    place = {"xref": "paper", "yref": "paper", "xanchor": "center", "yanchor": "bottom"}
    fig.add_annotation(text=text, x=x, y=y, showarrow=False, font={"size": 16}, **place)
