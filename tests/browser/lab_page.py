"""A page of JupyterLab in Chromium: run a notebook, look at what is drawn, read what the browser complains of."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

SIZE, MOST_PX = (1360, 1000), 16_000
QUIET_S = 300.0
LONGEST_S = 600
"""A notebook runs."""

ALLOWED = {
    "Blocked attempt to show a 'beforeunload' confirmation panel": "JupyterLab asks whether to leave unsaved work"
}
"""Part of a message to why it is none of ours."""

_RUN = """
const [path, done] = arguments;
(async () => {
  const app = window.jupyterapp;
  await app.restored;
  const widget = await app.commands.execute('docmanager:open', {path, factory: 'Notebook'});
  await widget.context.ready;
  await widget.sessionContext.ready;
  window.opened = widget;
  return widget.content.widgets.length;
})().then(done, (error) => done(String(error)));
"""
_RUN_ALL = """
const [done] = arguments;
window.jupyterapp.commands.execute('notebook:run-all-cells').then(() => done(null), (error) => done(String(error)));
"""
_ERRORS = """
return window.opened.content.model.sharedModel.cells.flatMap((cell, i) =>
  (cell.outputs ?? []).filter((o) => o.output_type === 'error').map((o) => [i, `${o.ename}: ${o.evalue}`]));
"""
_HEIGHT = "return document.querySelector('.jp-WindowedPanel-outer').scrollHeight"
_TOP = "document.querySelector('.jp-WindowedPanel-outer').scrollTop = 0"
_SHUT = "const [done] = arguments; window.opened.sessionContext.shutdown().then(() => done(null), done)"
_PLOTS = """
return [...document.querySelectorAll('.jp-Notebook :is(.ticdc-drawn, .ticdc-plot, .js-plotly-plot)')].map((gd) => ({
  title: (gd.layout?.title?.text ?? gd.querySelector('h4')?.textContent ?? '').replaceAll('<br>', ' '),
  finding: gd.layout?.meta?.finding ?? gd.querySelector('.ticdc-words h4')?.textContent ?? null,
  traces: (gd.data ?? []).length, svg: gd.querySelectorAll('.main-svg, .ticdc-words').length,
  marks: gd.querySelectorAll('.scatterlayer path, .scatterlayer text, .barlayer path, .heatmaplayer image, '
    + '.iciclelayer path, .table .column-cell, .annotation-text, .ticdc-words p, .ticdc-words td').length,
  paper: gd._fullLayout?.paper_bgcolor ?? null, height: gd.getBoundingClientRect().height,
  wide: Math.max(0, ...[...gd.querySelectorAll('.gtitle')].map((t) => t.getBoundingClientRect().width)),
  fitted: gd.ticdcInWords || (gd.ticdcFitted?.layout === gd.layout && gd.ticdcFitted?.key !== undefined),
  width: gd.clientWidth, svg_width: gd.querySelector('.main-svg')?.getBoundingClientRect().width ?? 0,
  data: JSON.stringify((gd.data ?? []).map((t) => [t.type, t.name, t.x, t.y, t.z, t.labels, t.cells?.values]))
    + (gd.querySelector('.ticdc-words')?.textContent ?? ''),
}));
"""


@dataclass(frozen=True, slots=True)
class Plot:
    """What plotly has drawn in a box."""

    title: str
    finding: str | None
    traces: int
    svg: int
    marks: int
    paper: str | None
    height: float
    wide: float
    fitted: bool
    width: float
    svg_width: float
    data: str

    def blank(self) -> bool:
        """Whether there is nothing visible of what it should show."""
        return self.svg == 0 or self.marks == 0 or not self.title


class LabPage:
    """One window of JupyterLab, whose pictures go to a folder."""

    size = SIZE

    def __init__(self, browser: webdriver.Chrome, address: str, pictures: Path, root: Path) -> None:
        self.browser, self.address, self.pictures, self.root = browser, address, pictures, root

    def made(self, name: str, *cells: str) -> str:
        """Write a notebook of code cells; gives its path as the lab knows it."""
        import nbformat  # takes six seconds, which every test run would wait for

        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(notebook, self.root / f"{name}.ipynb")
        return f"{name}.ipynb"

    def open(self, path: str) -> int:
        """Open a notebook in a lab without other tabs; gives its number of cells."""
        self.browser.get(f"{self.address}/lab?reset")
        self.until(lambda: self.browser.execute_script("return window.jupyterapp !== undefined"), "JupyterLab is there")
        found = self.browser.execute_async_script(_RUN, path)
        assert isinstance(found, int), found
        self.browser.execute_script("window.jupyterapp.shell.collapseLeft()")
        return found

    def run_all(self) -> None:
        """Run all cells and wait for the last one and for what it draws."""
        failed = self.browser.execute_async_script(_RUN_ALL)
        assert failed is None, failed

    def cell_errors(self) -> list[tuple[int, str]]:
        """Which cells ended in an error."""
        return [(int(i), str(words)) for i, words in self.browser.execute_script(_ERRORS)]

    def plots(self) -> list[Plot]:
        """Every plot of the notebook."""
        return [Plot(**found) for found in self.browser.execute_script(_PLOTS)]

    def complaints(self) -> list[str]:
        """What the browser's console reported since the last call, except for what is allowed."""
        said = [e for e in self.browser.get_log("browser") if e["level"] in ("SEVERE", "ERROR")]
        return [e["message"] for e in said if not any(part in e["message"] for part in ALLOWED)]

    def until(self, true: Callable[[], Any], what: str, *, within_s: float = QUIET_S) -> Any:
        """Wait until something holds."""
        end = time.monotonic() + within_s
        while not (found := true()):
            assert time.monotonic() < end, f"not within {within_s:g} s: {what}"
            time.sleep(0.05)
        return found

    def all(self, css: str) -> list[WebElement]:
        """Elements of the page."""
        return self.browser.find_elements(By.CSS_SELECTOR, css)

    def dark(self, on: bool) -> None:
        """Switch JupyterLab's theme."""
        theme = f"JupyterLab {'Dark' if on else 'Light'}"
        self.browser.execute_async_script(
            "const [theme, done] = arguments;"
            "window.jupyterapp.commands.execute('apputils:change-theme', {theme}).then(() => done(null), done)", theme
        )  # fmt: skip
        light = "false" if on else "true"
        self.until(lambda: self.all(f"body[data-jp-theme-light='{light}']"), theme)

    def whole_page(self) -> None:
        """Make the window as high as the notebook, and begin at its top."""
        high = self.browser.execute_script(_HEIGHT)
        self.browser.set_window_size(self.size[0], min(MOST_PX, int(high) + 250))
        self.browser.execute_script(_TOP)

    def closed(self) -> None:
        """Shut the notebook's kernel down, and give the window its size back."""
        self.browser.set_window_size(*self.size)
        self.browser.execute_async_script(_SHUT)

    def picture(self, name: str, of: WebElement | None = None) -> Path:
        """Save what is seen, of the page or of an element."""
        path = self.pictures / f"{name}.png"
        if of is None:
            self.browser.save_screenshot(str(path))
        else:
            of.screenshot(str(path))
        return path


@contextmanager
def chromium() -> Iterator[webdriver.Chrome]:
    """A browser for which there is no network but loopback, and that keeps what its console shows."""
    options = webdriver.ChromeOptions()
    flags = ["headless=new", "no-sandbox", "disable-gpu", "no-first-run", "disable-background-networking"]
    flags += ["disable-component-update", "disable-sync", "hide-scrollbars", f"window-size={SIZE[0]},{SIZE[1]}"]
    flags += ["host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "disable-dev-shm-usage"]
    with tempfile.TemporaryDirectory() as profile:
        for flag in [*flags, f"user-data-dir={profile}"]:
            options.add_argument(f"--{flag}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = webdriver.ChromeService("/usr/bin/chromedriver", log_output=str(Path(profile) / "driver.log"))
        with webdriver.Chrome(options=options, service=service) as browser:
            browser.set_script_timeout(LONGEST_S)
            browser.command_executor.client_config.timeout = LONGEST_S + 20
            yield browser


def described(plots: list[Plot]) -> str:
    """Plots in words, for a failed assertion."""
    return json.dumps([[p.title, p.traces, p.svg, p.marks, p.height] for p in plots], indent=1)
