"""Every figure that the notebooks and their panels draw, to look at: in light and dark, on wide and narrow screens.

``python tests/figures/gallery.py record OUT [01 02 ...]`` runs the notebooks here and keeps what each public function
of ``ticdc_lab.figures`` was called with, also for every picture of every panel; ``... shoot OUT [name ...]`` draws
these calls again with the code as it is, into one page and one picture for each width and theme. Look at OUT/*.png.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import nbformat
from pyspark import cloudpickle
from selenium import webdriver

from ticdc_lab import figures
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.page_scripts import FIT_JS
from ticdc_lab.figures.plotly_js import library
from ticdc_lab.widgets import Panel

ROOT = Path(__file__).resolve().parent.parent.parent
SHOTS = ((1100, "dark", True), (800, "light", False), (600, "light", True))
"""Width, theme, and whether the page runs ``fit.js``, as reports and panels do but a plain ``fig.show()`` does not."""
MOST = 3
"""Calls kept of each function in each notebook."""

Call = tuple[str, str, tuple[Any, ...], dict[str, Any]]
"""Notebook, function, and what it was called with."""


def record(out: Path, wanted: list[str]) -> None:
    """Run notebooks and keep the calls of each, a file a notebook."""
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        if wanted and path.stem[:2] not in wanted:
            continue
        calls: list[Call] = []
        with _recorded(path.stem[:2], calls):
            _ran(path)
        (out / f"{path.stem[:2]}.calls").write_bytes(cloudpickle.dumps(calls))
        print(path.stem, len(calls), "calls")


class _recorded:
    """Public functions of the figures note their calls while this lasts."""

    def __init__(self, notebook: str, calls: list[Call]) -> None:
        self.notebook, self.calls, self.seen = notebook, calls, Counter[str]()
        self.real = {n: f for n in figures.__all__ if callable(f := getattr(figures, n)) and not isinstance(f, type)}

    def __enter__(self) -> None:
        for name, function in self.real.items():
            setattr(figures, name, self._noting(name, function))

    def __exit__(self, *_: object) -> None:
        for name, function in self.real.items():
            setattr(figures, name, function)

    def _noting(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def noting(*args: Any, **kwargs: Any) -> Any:
            drawn = function(*args, **kwargs)
            if isinstance(drawn, Figure) and self.seen[name] < MOST:
                self.seen[name] += 1
                self.calls.append((self.notebook, name, args, kwargs))
            return drawn

        return noting


def _ran(path: Path) -> None:
    os.chdir(path.parent)
    Figure.show = lambda *_, **__: None
    names: dict[str, Any] = {"display": lambda *_: None}
    cells = [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
    for cell in cells[:-1]:
        exec(compile(cell.source, path.name, "exec"), names)
        for panel in [v for v in names.values() if isinstance(v, Panel)]:
            _every_picture(panel)
    exec(compile(cells[-1].source, path.name, "exec"), names)
    for panel in [v for v in names.values() if isinstance(v, Panel)]:
        _every_picture(panel)


def _every_picture(panel: Panel[Any]) -> None:
    picture = panel.controls.get("picture")
    if picture is not None and not getattr(panel, "pictured", False):
        panel.pictured = True  # type: ignore[attr-defined]
        for option in picture.options:
            picture.value = option[1] if isinstance(option, tuple) else option


def drawn(out: Path) -> Iterator[tuple[str, Figure]]:
    """Draw the calls that were kept, with the code as it is now."""
    for path in sorted(out.glob("*.calls")):
        n = Counter[str]()
        for notebook, name, args, kwargs in cloudpickle.loads(path.read_bytes()):
            n[name] += 1
            yield f"{notebook}_{name}_{n[name]}", getattr(figures, name)(*args, **kwargs)


def shoot(out: Path, wanted: list[str]) -> None:
    """One page with all figures, and a picture of each for every width and theme."""
    found = {k: fig for k, fig in drawn(out) if not wanted or any(w in k for w in wanted)}
    page = out / "gallery.html"
    scripts = f"<script>{library()}</script><script>{FIT_JS}</script>"
    page.write_text(f"<!DOCTYPE html><meta charset='utf-8'>{scripts}<body style='margin:0'>", encoding="utf-8")
    options = webdriver.ChromeOptions()
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--hide-scrollbars",
        "--force-device-scale-factor=1",
        "--window-size=1200,2400",
    ):
        options.add_argument(flag)
    with webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver")) as browser:
        browser.get(page.as_uri())
        for name, fig in found.items():
            for width, theme, fits in SHOTS:
                _shot(browser, figures.themed(fig, theme), width, fits, out / f"{name}_{width}.png")


_DRAW = """
const [figure, width, config, fits, done] = arguments;
document.body.innerHTML = `<div id="f" style="width:${width}px"></div>`;
(async () => {
  const f = document.getElementById('f');
  await Plotly.newPlot(f, {...figure, config});
  if (fits) await ticdcFit(Plotly, f);
  setTimeout(done, 60);
})();
"""


def _shot(browser: webdriver.Chrome, fig: Figure, width: int, fits: bool, path: Path) -> None:
    config = dict(figures.CONFIG) | {"displayModeBar": True}
    browser.execute_async_script(_DRAW, json.loads(fig.to_json()), width, config, fits)
    browser.find_element("id", "f").screenshot(str(path))


if __name__ == "__main__":
    todo, folder, *names = sys.argv[1:]
    Path(folder).mkdir(parents=True, exist_ok=True)
    {"record": record, "shoot": shoot}[todo](Path(folder).resolve(), names)
