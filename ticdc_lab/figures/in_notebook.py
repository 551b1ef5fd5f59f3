"""How figures come into a notebook: with our toolbar, following its theme, and without a network.

JupyterLab's extension for plotly keeps a PNG of each figure in the notebook, as high as its box happened to be when it
was drawn, and shows that when the notebook is opened again. So figures are HTML that a script of ours draws.
"""

from __future__ import annotations

import base64
import gzip
import html
import sys
import tempfile
import webbrowser
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import orjson

from ticdc_lab.figures.look import CONFIG, template
from ticdc_lab.figures.nested import as_json
from ticdc_lab.figures.page_scripts import COPY_JS, FIT_JS
from ticdc_lab.figures.plotly_js import packed_library

if TYPE_CHECKING:
    from ticdc_lab.figures.figure import Figure

_DRAW = """<div id="%(id)s" class="ticdc-drawn" data-figure="%(packed)s" style="min-height:%(height)spx;width:100%%">
<p>%(finding)s</p><p><small>The figure is drawn when this notebook is trusted and the cell runs.</small></p></div>
%(page)s
<script>globalThis.ticdcLabDraw?.()</script>"""
"""A figure: the page draws it once it has plotly.js, also when the notebook is opened again; until then its finding."""

_PAGE = """
<script>%(fit)s</script>
<script>(async function(){
if(window.ticdcLabTheme){return}window.ticdcLabTheme=true;const T=%(themes)s;
async function unpacked(text){const bytes=Uint8Array.from(atob(text),c=>c.charCodeAt(0));
return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).text()}
const module={exports:{}};new Function('module','exports',await unpacked("%(library)s"))(module,module.exports);
const Plotly=module.exports;globalThis.Plotly??=Plotly;
const page=globalThis.ticdcLab??={plotly:null,asking:null};page.plotly??=Plotly;page.arrived?.();
const first=document.createElement('div');await Plotly.newPlot(first,[]);Plotly.purge(first);
const set=document.body.dataset;
const name=()=>set.jpThemeLight===undefined?'light':set.jpThemeLight==='false'?'dark':'light';
const seen=new ResizeObserver(all=>all.forEach(({target})=>follow(target)));
async function follow(g){if(!g.clientWidth||g.ticdcBusy){return}g.ticdcBusy=true;try{
if(g.ticdcLab===undefined){const f=JSON.parse(await unpacked(g.dataset.figure));g.ticdcLab=name();g.replaceChildren();
g.ticdcFigure=f;await ticdcFit.draw(Plotly,g,{...f,layout:{...f.layout,template:T[name()]}})}
else if(g.ticdcLab!==name()){g.ticdcLab=name();const f=g.ticdcFigure,layout={...f.layout,template:T[name()]};
await(g.ticdcInWords?ticdcFit.draw(Plotly,g,{...f,layout}):Plotly.relayout(g,{template:T[name()]}))}
if(!g.ticdcInWords){await ticdcFit(Plotly,g);g.style.minHeight=g.layout.height+'px'}}finally{g.ticdcBusy=false}
if(g.ticdcLab!==name()){follow(g)}}
globalThis.ticdcLabDraw=function(){for(const g of document.querySelectorAll('.ticdc-drawn[data-figure]')){
seen.observe(g);follow(g)}};
new MutationObserver(ticdcLabDraw).observe(document.body,{attributes:true,attributeFilter:['data-jp-theme-light']});
let due=0;new MutationObserver(function(){if(!due){due=setTimeout(function(){due=0;ticdcLabDraw()},120)}})
.observe(document.body,{childList:true,subtree:true});ticdcLabDraw()})()</script>
"""
"""What a page needs once; plotly.js is packed in it, so that the notebook's file stays small.

It draws an empty figure first: what plotly measures texts with comes with the first one.
"""

PAGE_MARK = "window.ticdcLabTheme=true"
"""By which one knows the output of the cell that gave the page what it needs."""

_brought: dict[str, str] = {}
"""Cells of this kernel whose output has what the page needs, each with the message that ran it."""

_fallbacks: dict[str, str] = {}
"""The same of cells that display a widget, and have it in their fallback alone."""


def packed(fig: Figure) -> str:
    """A figure's settings as a page unpacks them."""
    told = as_json({**fig.to_dict(), "config": dict(CONFIG)})
    return base64.b64encode(gzip.compress(told.encode(), 6, mtime=0)).decode()


def figure_of(output: str) -> dict[str, Any] | None:
    """The settings of the figure that an output in HTML shows; None where it shows none."""
    _, begins, rest = output.partition('class="ticdc-drawn" data-figure="')
    if not begins:
        return None
    settings: dict[str, Any] = orjson.loads(gzip.decompress(base64.b64decode(rest.partition('"')[0])))
    return settings


def mime_bundle(fig: Figure, *, fallback: bool = False) -> dict[str, Any]:
    """Give a figure as HTML that the page draws, and its finding in words.

    The first one of a kernel brings what the page needs, unless :func:`notebook` has; so does its cell run again. Where
    a widget is displayed, nothing runs of its ``fallback``, so the first figure behind it brings it, too.
    """
    notebook = sys.modules.get("IPython")  # there where a kernel runs; figures need none
    kernel = getattr(notebook and notebook.get_ipython(), "kernel", None)
    page = ""
    if kernel is not None:
        parent = kernel.get_parent("shell")
        cell, run = (
            str(parent.get(part, {}).get(of, "")) for part, of in (("metadata", "cellId"), ("header", "msg_id"))
        )
        brought = _fallbacks if fallback and not _brought else _brought
        if not brought or (cell and cell in brought and brought[cell] != run):
            brought[cell], page = run, _page()
    of = {"id": uuid4(), "height": fig.layout.height or 450, "packed": packed(fig), "page": page}
    return {"text/html": _DRAW % {**of, "finding": html.escape(repr(fig))}, "text/plain": repr(fig)}


def open_page(fig: Figure) -> None:
    """Show a figure in the browser, as a script does; its page stays in the system's temporary folder."""
    with tempfile.NamedTemporaryFile("w", prefix="ticdc_lab-", suffix=".html", encoding="utf-8", delete=False) as page:
        page.write(f'<!DOCTYPE html><meta charset="utf-8"><body>{mime_bundle(fig)["text/html"]}{_page()}</body>')
    webbrowser.open(Path(page.name).as_uri())


@cache
def _page() -> str:
    themes = as_json({t: template(t) for t in ("light", "dark")}).replace("<", "\\u003c")
    library = base64.b64encode(packed_library()).decode()
    return _PAGE % {"fit": FIT_JS + COPY_JS, "themes": themes, "library": library}


@dataclass(frozen=True, slots=True)
class Notebook:
    """What the cell that calls :func:`notebook` shows: nothing visible, and what figures need in the page."""

    def _repr_html_(self) -> str:
        _brought.setdefault("", "")
        return _page()


def notebook() -> Notebook:
    """Let figures fit into this notebook, and turn dark and light with it.

    Returns
    -------
    Notebook
        To be the last line of its cell: the page then has plotly.js, so that an export with nbconvert needs no
        network, and figures turn dark and light with JupyterLab, and fit its width.
    """
    return Notebook()
