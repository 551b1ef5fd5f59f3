"""What the figures' tests draw, plotly's own classes check: settings that plotly has, with values that it
takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ticdc_lab.figures.figure import Figure


@pytest.fixture(autouse=True)
def every_figure_is_plotlys(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Figures are built unchecked; in ``tests/figures`` each is checked when the test is over."""
    made: list[Figure] = []
    begin = Figure.__init__

    def noting(self: Figure, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        made.append(self)

    if request.path.parent.name == "figures":
        monkeypatch.setattr(Figure, "__init__", noting)
    yield
    for figure in made:
        figure.go()
        for trace in figure.data:  # what a pointer reads is a number of something
            if trace.hoverinfo == "text" and not trace.hovertext and not trace.hovertemplate:
                said = [str(t) for t in ([trace.text] if isinstance(trace.text, str) else trace.text or [])]
                assert not any(t.replace(",", "").isdigit() for t in said), (trace.name, said[:3])
