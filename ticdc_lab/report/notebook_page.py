"""An executed notebook as a page that needs no network: settings of nbconvert, and what it does not do by itself.

nbconvert's own pages load require.js, MathJax and the widgets from a CDN, and show no plot offline. Here plotly.js is
in the page, once; each figure is drawn from its own JSON, sliders included; what only a kernel can do is noted.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nbconvert.preprocessors import Preprocessor
from pygments.formatters import HtmlFormatter
from traitlets import Bool
from traitlets.config import Config

from ticdc_lab.errors import TiCDCLabError
from ticdc_lab.figures.in_notebook import PAGE_MARK, figure_of
from ticdc_lab.report.page import figure, foot, head, made_of, section, text
from ticdc_lab.sources.provenance import MARK, provenance

PLOTLY, WIDGET = "application/vnd.plotly.v1+json", "application/vnd.jupyter.widget-view+json"
PARAMETERS, INJECTED = "parameters", "injected-parameters"
"""Tags of the cell that holds a notebook's parameters, and of the one that replaces some of them."""

_TEMPLATES = Path(__file__).with_name("nbconvert")
_BUNDLE_CHARS = 500_000
"""An output as long as this that names plotly.js is plotly.js, which the page has already."""

_STYLE = """
main{overflow-wrap:break-word}.highlight{background:var(--tint);border-radius:6px;margin:8px 0}
.output_text pre{white-space:pre-wrap}.highlight pre,.output_text pre{overflow-x:auto;margin:0;padding:8px 12px;font:12px/1.45 ui-monospace,'DejaVu Sans Mono',monospace}
.output_error pre{color:var(--wrong);white-space:pre-wrap}.output_html:has(table.dataframe){overflow-x:auto;margin:8px 0 16px}
a{color:inherit}a.anchor-link{display:none}table.dataframe{width:auto;border:0}
table.dataframe thead :is(tr,th){text-align:left!important}.dataframe td,.dataframe th{border:0;border-bottom:1px solid var(--line)}
p.kernel{color:var(--soft);font-style:italic;margin:14px 0 0}
@media print{.highlight pre,.output_text pre{white-space:pre-wrap;overflow-wrap:anywhere}.cell{break-inside:auto}}
"""  # noqa: E501
_DEAD = "The controls of this panel need a running kernel: open the notebook in JupyterLab. This is where they begin."
_NONE = "This part needs a running kernel: open the notebook in JupyterLab."


def offline(config: Config) -> Config:
    """Set nbconvert's HTML exporter to make pages that need no network, of any notebook.

    An installed package sets ``jupyter nbconvert`` of its environment the same way by
    ``etc/jupyter/jupyter_nbconvert_config.json``, for notebooks that import it. What is installed names this module.
    """
    config.SelfContained.every = True
    config.HTMLExporter.template_name = "ticdc_lab"
    config.HTMLExporter.extra_template_basedirs = [str(_TEMPLATES)]
    config.HTMLExporter.preprocessors = [SelfContained]
    config.HTMLExporter.embed_images = True
    return config


class SelfContained(Preprocessor):
    """Draw figures from their JSON, mark what needs a kernel, link pages, not notebooks, end with its sources."""

    every = Bool(False, help="Also notebooks that do not import ticdc_lab.").tag(config=True)

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        """Change a notebook that was executed; ``resources`` get the page's beginning and end."""
        if not (self.every or any(c.cell_type == "code" and "ticdc_lab" in c.source for c in nb.cells)):
            return nb, resources
        for n, cell in enumerate(nb.cells):
            if cell.cell_type == "markdown":
                cell.source = _linked(cell.source)
            if cell.cell_type == "code":
                cell.outputs = [o for i, out in enumerate(cell.outputs) for o in _shown(out, f"plot-{n}-{i}")]
        nb.metadata.pop("widgets", None)
        title = _take_title(nb) or str(resources["metadata"]["name"])
        says_it = any(MARK in _html(o) for c in nb.cells for o in c.get("outputs", []))
        end = "" if says_it else _made_of(nb, resources["metadata"])
        resources["ticdc_lab"] = {"head": head(title, more_style=_STYLE + _highlighting()), "foot": end + foot()}
        return nb, resources


def parameters(nb: Any) -> dict[str, Any]:
    """Name to value of a notebook's parameters; those that are not plain values are left out."""
    found: dict[str, Any] = {}
    for cell in nb.cells:
        if {PARAMETERS, INJECTED} & set(cell.metadata.get("tags", [])):
            for node in ast.parse(cell.source).body:
                found |= dict(_assigned(node))
    return found


def _assigned(node: ast.stmt) -> Iterator[tuple[str, Any]]:
    if not isinstance(node, ast.Assign):
        return
    try:
        value = ast.literal_eval(node.value)
    except ValueError:
        return
    for target in node.targets:
        if isinstance(target, ast.Name):
            yield target.id, value
        elif isinstance(target, ast.Tuple):
            yield from ((t.id, v) for t, v in zip(target.elts, value, strict=True) if isinstance(t, ast.Name))


def _shown(output: Any, id: str) -> Iterator[Any]:
    """The output as the page shows it; none for plotly.js itself, nor for blank lines."""
    data = output.get("data")
    if data is None and output.get("output_type") == "stream" and not output["text"].strip():
        return
    if data is None:
        yield output
        return
    drawn = data.get(PLOTLY) or figure_of(_html(output))
    if drawn is not None:
        needs = f'<p class="kernel">{_DEAD}</p>' if WIDGET in data else ""
        output["data"] = {"text/html": needs + figure(drawn, id=id, packed=True)}
    elif WIDGET in data:
        output["data"] = {"text/html": f'<p class="kernel">{_NONE}</p>'}
    elif PAGE_MARK in _html(output) or (len(_html(output)) > _BUNDLE_CHARS and "plotly.js" in _html(output)):
        return
    yield output


def _html(output: Any) -> str:
    return str(output.get("data", {}).get("text/html", ""))


def _linked(markdown: str) -> str:
    """Links to notebooks lead to their pages; a picture from elsewhere becomes a link to it."""
    pages = re.sub(r"(\]\([^)\s:]+)\.ipynb(#[^)\s]*)?\)", lambda m: f"{m[1]}.html{m[2] or ''})", markdown)
    return re.sub(r"!(\[[^\]]*\]\(https?:)", r"\1", pages)


def _take_title(nb: Any) -> str:
    """Take the first heading out of the notebook: the page has it in its own place."""
    first = next((c for c in nb.cells if c.cell_type == "markdown"), None)
    found = re.match(r"\s*# (.+)\n?", first.source) if first is not None else None
    if first is None or found is None:
        return ""
    first.source = first.source[found.end() :]
    return found[1].strip()


def _made_of(nb: Any, of: Mapping[str, Any]) -> str:
    """The parameters, the inputs that they name, and versions."""
    given, folder = parameters(nb), Path(of.get("path") or ".")
    inputs = [v for value in given.values() for v in (value if isinstance(value, list | tuple) else [value])]
    settings = {"notebook": of["name"], **given}
    try:
        made = provenance(
            [folder / v for v in inputs if isinstance(v, str) and _is_there(folder, v)], settings=settings
        )
    except TiCDCLabError as error:
        return f'<p class="limit">{text(error.message)}</p>'
    return section(made_of(made))


def _is_there(folder: Path, name: str) -> bool:
    return bool(name) and os.path.exists(folder / name)  # a Path raises where a text is too long for a name


def _highlighting() -> str:
    """Colours of code in both themes."""
    themes: Mapping[str, str] = {".highlight": "default", "[data-theme=dark] .highlight": "github-dark"}
    rules = [HtmlFormatter(style=style, nobackground=True).get_style_defs(where) for where, style in themes.items()]
    return "\n".join(str(r) for r in rules)
