"""How figures come into a notebook: with our toolbar, following its theme, and without a network."""

from __future__ import annotations

import base64
import gzip
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import orjson

from ticdc_lab.figures.figure import MIME, Figure, as_json
from ticdc_lab.figures.page_scripts import COPY_JS, FIT_JS
from ticdc_lab.figures.plotly_js import packed_library
from ticdc_lab.figures.theme import CONFIG, template

_DRAW = """<div id="%(id)s" class="plotly-graph-div" style="height:%(height)spx;width:100%%"></div>
<script>(globalThis.ticdcLabWaiting??=[]).push(["%(id)s","%(packed)s"]);globalThis.ticdcLabDraw?.()</script>"""
"""A figure of an export: the page draws it once it has plotly.js."""

_PAGE = """
<script>%(fit)s</script>
<script>(async function(){
if(window.ticdcLabTheme){return}window.ticdcLabTheme=true;const T=%(themes)s,KINDS=%(kinds)s;
async function unpacked(text){const bytes=Uint8Array.from(atob(text),c=>c.charCodeAt(0));
return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).text()}
const module={exports:{}};new Function('module','exports',await unpacked("%(library)s"))(module,module.exports);
const Plotly=module.exports;globalThis.Plotly??=Plotly;
const first=document.createElement('div');await Plotly.newPlot(first,[]);Plotly.purge(first);
const set=document.body.dataset,drawn='.js-plotly-plot';
const name=()=>set.jpThemeLight===undefined?'light':set.jpThemeLight==='false'?'dark':'light';
globalThis.ticdcLabDraw=async function(){for(const[id,text]of(globalThis.ticdcLabWaiting??[]).splice(0)){
const g=document.getElementById(id);if(g){await Plotly.newPlot(g,JSON.parse(await unpacked(text)))}}follow(false)};
function follow(all){document.querySelectorAll(drawn).forEach(function(g){
if(!g._fullLayout||!g.clientWidth||g.closest('[data-ticdc-theme],.ticdc-plot')){return}
if(!(g.data??[]).every(t=>KINDS.includes(t.type??'scatter'))){return}
ticdcFit(Plotly,g);if(!all&&g.ticdcLab===name()){return}
if(g.ticdcLab===undefined&&name()==='light'){g.ticdcLab='light';return}
g.ticdcLab=name();Plotly.relayout(g,{template:T[name()]})})}
new MutationObserver(()=>{follow(true);setTimeout(follow,400,false)})
.observe(document.body,{attributes:true,attributeFilter:['data-jp-theme-light']});
let due=0;new MutationObserver(function(){if(!due){due=setTimeout(function(){due=0;follow(false)},120)}})
.observe(document.body,{childList:true,subtree:true});addEventListener('resize',()=>setTimeout(follow,200,false));
ticdcLabDraw()})()</script>
"""
"""What a page needs once; plotly.js is packed in it, so that the notebook's file stays small.

It draws an empty figure first: what it measures texts with comes with the first one, and where JupyterLab draws the
figures itself, ours only fits and colours them.
"""

PAGE_MARK = "window.ticdcLabTheme=true"
"""By which one knows the output of the cell that gave the page what it needs."""

KINDS = ("scatter", "bar", "heatmap", "icicle", "table")
"""The traces that our plotly.js can draw, see ``plotly_js``; another figure of a notebook is left as it is."""


def mime_bundle(fig: Figure) -> dict[str, Any]:
    """Give a figure as JupyterLab draws it itself, as HTML for an export, and its finding in words."""
    whole = {**fig.to_dict(), "config": dict(CONFIG)}
    told = as_json(whole)
    packed = base64.b64encode(gzip.compress(told.encode(), 6, mtime=0)).decode()
    html = _DRAW % {"id": uuid4(), "height": fig.layout.height or 450, "packed": packed}
    return {MIME: orjson.loads(told), "text/html": html, "text/plain": repr(fig)}


@dataclass(frozen=True, slots=True)
class Notebook:
    """What the cell that calls :func:`notebook` shows: nothing to be seen, and what figures need in the page."""

    def _repr_html_(self) -> str:
        themes = as_json({t: template(t) for t in ("light", "dark")}).replace("<", "\\u003c")
        library = base64.b64encode(packed_library()).decode()
        return _PAGE % {"fit": FIT_JS + COPY_JS, "themes": themes, "kinds": list(KINDS), "library": library}


def notebook() -> Notebook:
    """Let figures fit into this notebook, and turn dark and light with it.

    Returns
    -------
    Notebook
        To be the last line of its cell: the page then has plotly.js, so that an export with nbconvert needs no
        network, and figures turn dark and light with JupyterLab, and fit its width.
    """
    return Notebook()
