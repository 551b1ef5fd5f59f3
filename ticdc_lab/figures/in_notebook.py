"""How figures come into a notebook: with our toolbar, following its theme, and without a network."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import plotly.io as pio
from plotly.io.base_renderers import MimetypeRenderer
from plotly.offline import get_plotlyjs

from ticdc_lab.figures.fitting import FIT_JS
from ticdc_lab.figures.theme import CONFIG

RENDERER = "ticdc_lab"
"""Name of the renderer that :func:`notebook` chooses."""

_MIME = "application/vnd.plotly.v1+json"
_FOLLOW = """
<script>%s</script>
<script>%s</script>
<script>(function(){
if(window.ticdcLabTheme){return}window.ticdcLabTheme=true;const T=%s;
const set=document.body.dataset,drawn='.js-plotly-plot';
const name=()=>set.jpThemeLight===undefined?'light':set.jpThemeLight==='false'?'dark':'light';
function follow(all){document.querySelectorAll(drawn).forEach(function(g){
if(!g._fullLayout||!g.clientWidth||g.closest('[data-ticdc-theme],.ticdc-plot')){return}
ticdcFit(Plotly,g);if(!all&&g.ticdcLab===name()){return}
if(g.ticdcLab===undefined&&name()==='light'){g.ticdcLab='light';return}
g.ticdcLab=name();Plotly.relayout(g,{template:T[name()]})})}
new MutationObserver(()=>{follow(true);setTimeout(follow,400,false)})
.observe(document.body,{attributes:true,attributeFilter:['data-jp-theme-light']});
let due=0;new MutationObserver(function(){if(!due){due=setTimeout(function(){due=0;follow(false)},120)}})
.observe(document.body,{childList:true,subtree:true});addEventListener('resize',()=>setTimeout(follow,200,false));
follow(false)})()</script>
"""


class _Shown(MimetypeRenderer):  # type: ignore[misc]  # plotly has no types
    """A figure as JupyterLab draws it itself, as HTML for an export, and its finding in words."""

    def to_mimebundle(self, fig_dict: dict[str, Any]) -> dict[str, Any]:
        """Every form of a figure."""
        html = pio.to_html(
            fig_dict, config=dict(CONFIG), auto_play=False, include_plotlyjs=False, include_mathjax=False,
            full_html=False, validate=False,
        )  # fmt: skip
        drawn = json.loads(pio.to_json(fig_dict, validate=False)) | {"config": dict(CONFIG)}
        said = fig_dict.get("layout", {}).get("meta")
        finding = said.get("finding") if isinstance(said, dict) else None
        return {_MIME: drawn, "text/html": html, "text/plain": finding or "a figure"}


@dataclass(frozen=True, slots=True)
class Notebook:
    """What the cell that calls :func:`notebook` shows: nothing to be seen, and what figures need in the page."""

    def _repr_html_(self) -> str:
        themes = {t: pio.templates[f"ticdc_{t}"].to_plotly_json() for t in ("light", "dark")}
        return _FOLLOW % (get_plotlyjs(), FIT_JS, json.dumps(themes).replace("<", "\\u003c"))


def notebook() -> Notebook:
    """Let figures show themselves in this notebook: ``figure.show()``, or a figure as the last line of a cell.

    Returns
    -------
    Notebook
        To be the last line of its cell: the page then has plotly.js, so that an export with nbconvert needs no
        network, and figures turn dark and light with JupyterLab, and fit its width.
    """
    pio.renderers[RENDERER] = _Shown()
    pio.renderers.default = RENDERER
    return Notebook()
