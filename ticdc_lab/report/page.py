"""The page around the sections. Everything that comes from data goes through :func:`text`."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache

import plotly.graph_objects as go
from plotly.io import templates
from plotly.offline import get_plotlyjs

from ticdc_lab.figures.theme import CONFIG

_STYLE = """
:root{--paper:#fff;--ink:#1d1d1f;--soft:#5f6368;--line:#dcdcdc;--wrong:#b34700;--tint:#f4f5f7}
[data-theme=dark]{--paper:#16181c;--ink:#e6e6e6;--soft:#a4a8ae;--line:#3a3d42;--wrong:#ff9a5c;--tint:#20242a}
body{background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;
max-width:1100px;margin:0 auto;padding:20px 24px 60px}
h1{font-size:24px;margin:0;overflow-wrap:anywhere}h2{font-size:20px;margin:44px 0 6px;padding-top:14px;
border-top:1px solid var(--line)}h3{font-size:16px;margin:22px 0 4px}
p.answer{font-size:17px;margin:6px 0 12px}
p.limit{border-left:4px solid var(--wrong);padding:4px 12px;background:var(--tint)}
nav a{margin-right:16px;color:inherit}nav{margin:10px 0;color:var(--soft)}
header{display:flex;gap:16px;justify-content:space-between;align-items:start}
button{font:inherit;font-size:13px;border:1px solid var(--line);background:var(--tint);color:inherit;border-radius:6px;
padding:4px 10px;cursor:pointer;white-space:nowrap}
.scroll{overflow:auto;max-height:420px;border:1px solid var(--line);border-radius:6px;margin:8px 0 16px}
table{border-collapse:collapse;width:100%;font-size:13px}th,td{text-align:left;padding:4px 10px;
border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:break-word}
th{white-space:nowrap;position:sticky;top:0;background:var(--tint)}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;
white-space:nowrap}td.code{font-family:ui-monospace,'DejaVu Sans Mono',monospace;font-size:12px;white-space:pre-wrap}
tr:last-child td{border-bottom:0}.figure{margin:10px 0 22px}
@media print{button,nav{display:none}.scroll{max-height:none}}
"""

_SCRIPT = """
(function(){const T=%s;function set(t){document.documentElement.dataset.theme=t;
document.querySelectorAll('.plotly-graph-div').forEach(function(g){Plotly.relayout(g,{template:T[t]})});}
document.getElementById('theme').onclick=function(){
set(document.documentElement.dataset.theme==='dark'?'light':'dark');};
if(location.hash==='#dark'||window.matchMedia('(prefers-color-scheme: dark)').matches){set('dark');}})();
"""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of plain values; ``code`` names columns of program text, numbers are set to the right."""

    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    code: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """One question of the report: its answer in a sentence, what cannot be proved, then tables and figures."""

    id: str
    title: str
    answer: str
    limits: Sequence[str] = ()
    body: Sequence[Table | go.Figure | str] = field(default_factory=tuple)


def text(value: object) -> str:
    """Any value from the data as HTML text."""
    return html.escape("" if value is None else str(value))


def plain(fig: go.Figure) -> str:
    """The finding of a figure as plain text again."""
    return html.unescape(str(fig.layout.meta["finding"]))


def page(name: str, *, lead: str, sections: Iterable[Section]) -> str:
    """Build the whole file as one text."""
    parts = list(sections)
    links = "".join(f'<a href="#{s.id}">{text(s.title)}</a>' for s in parts)
    dark_and_light = json.dumps({t: templates[f"ticdc_{t}"].to_plotly_json() for t in ("light", "dark")})
    return "".join(
        [
            '<!DOCTYPE html>\n<html lang="en" data-theme="light">\n<head>\n<meta charset="utf-8">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            f"<title>{text(name)}</title>\n<style>{_STYLE}</style>\n<script>{_plotly_js()}</script>\n</head>\n<body>\n",
            f'<header><h1>{text(name)}</h1><button id="theme" type="button">dark / light</button></header>\n',
            f'<p class="answer">{text(lead)}</p>\n<nav>{links}</nav>\n',
            *[_section(s) for s in parts],
            f"<script>{_SCRIPT % dark_and_light.replace('<', chr(92) + 'u003c')}</script>\n</body>\n</html>\n",
        ]
    )


@cache
def _plotly_js() -> str:
    return str(get_plotlyjs())


def _section(s: Section) -> str:
    limits = "".join(f'<p class="limit">{text(limit)}</p>\n' for limit in s.limits)
    body = "".join(_block(b, id=f"{s.id}-{i}") for i, b in enumerate(s.body))
    head = f'<section id="{s.id}">\n<h2>{text(s.title)}</h2>\n<p class="answer">{text(s.answer)}</p>\n'
    return f"{head}{limits}{body}</section>\n"


def _block(block: Table | go.Figure | str, *, id: str) -> str:
    if isinstance(block, str):
        return f"<h3>{text(block)}</h3>\n"
    if isinstance(block, Table):
        return _table(block)
    drawn = block.to_html(
        full_html=False, include_plotlyjs=False, div_id=f"plot-{id}", config=dict(CONFIG), auto_play=False
    )
    return f'<div class="figure">{drawn}</div>\n'


def _table(table: Table) -> str:
    kinds = [_kind(table, i) for i in range(len(table.head))]
    head = "".join(f"<th{k}>{text(h)}</th>" for h, k in zip(table.head, kinds, strict=True))
    rows = ["".join(f"<td{k}>{_cell(v)}</td>" for v, k in zip(row, kinds, strict=True)) for row in table.rows]
    body = "".join(f"<tr>{row}</tr>\n" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>\n'


def _kind(table: Table, column: int) -> str:
    if table.head[column] in table.code:
        return ' class="code"'
    return ' class="n"' if all(isinstance(row[column], int | float) for row in table.rows) else ""


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}"
    return f"{value:,}" if isinstance(value, int) else text(value)
