"""The page around the sections. Everything that comes from data goes through :func:`text`."""

from __future__ import annotations

import base64
import gzip
import html
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from typing import Any

from ticdc_lab.events.tso import clock_words
from ticdc_lab.figures.figure import MIME, Figure
from ticdc_lab.figures.look import CONFIG, template
from ticdc_lab.figures.nested import as_json
from ticdc_lab.figures.page_scripts import COPY_JS, FIT_JS, TABLE_TOOLS, timed
from ticdc_lab.figures.plotly_js import library
from ticdc_lab.sources.provenance import Provenance
from ticdc_lab.words import in_html, visible

_STYLE = """
:root{--paper:#fff;--ink:#1d1d1f;--soft:#5f6368;--line:#dcdcdc;--wrong:#b34700;--good:#00694b;--tint:#f4f5f7;--shade:#0003;
color-scheme:light}
[data-theme=dark]{--paper:#16181c;--ink:#e6e6e6;--soft:#a4a8ae;--line:#3a3d42;--wrong:#ff9a5c;--good:#4cc79b;--tint:#20242a;
--shade:#fff3;color-scheme:dark}
body{background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;
overflow-wrap:break-word;max-width:1280px;margin:0 auto;padding:20px 24px 60px}
h1{font-size:24px;margin:0;overflow-wrap:anywhere}h2{font-size:20px;margin:44px 0 6px;padding-top:14px;
border-top:1px solid var(--line)}h3{font-size:16px;margin:22px 0 4px}
p.answer{font-size:17px;margin:6px 0 12px;max-width:1100px}
.limits{border-left:4px solid var(--wrong);padding:4px 12px;background:var(--tint);margin:12px 0}.limits p{margin:4px 0}
nav{margin:10px 0;padding:6px 0;color:var(--soft);position:sticky;top:0;z-index:2;background:var(--paper);
border-bottom:1px solid var(--line)}nav a{margin-right:16px;color:inherit;white-space:nowrap}
html{scroll-padding-top:72px}.sign{white-space:nowrap;font-weight:600}.sign.good{color:var(--good)}
.sign.bad{color:var(--wrong)}.sign.unsure{color:var(--soft)}.sign.warn{color:var(--ink)}
header{display:flex;gap:16px;justify-content:space-between;align-items:start}
button{font:inherit;font-size:13px;border:1px solid var(--line);background:var(--tint);color:inherit;border-radius:6px;
padding:4px 10px;cursor:pointer;white-space:nowrap}
.scroll{overflow:auto;max-height:600px;border:1px solid var(--line);border-radius:6px;margin:8px 0 16px}
#verdict .scroll{max-height:none}
.scroll,nav{background:linear-gradient(to right,var(--paper) 40%,transparent) left/40px 100% no-repeat local,
linear-gradient(to left,var(--paper) 40%,transparent) right/40px 100% no-repeat local,
linear-gradient(to top,var(--paper) 40%,transparent) bottom/100% 40px no-repeat local,
linear-gradient(to right,var(--shade),transparent) left/16px 100% no-repeat,
linear-gradient(to left,var(--shade),transparent) right/16px 100% no-repeat,
linear-gradient(to top,var(--shade),transparent) bottom/100% 16px no-repeat,var(--paper)}
table{border-collapse:collapse;width:100%;font-size:13px}th,td{text-align:left;padding:4px 10px;
border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:break-word}
thead td{background:var(--tint);position:sticky;top:0}
th{white-space:nowrap;position:sticky;top:0;background:var(--tint)}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;
white-space:nowrap}td.ticdc-ts{font-variant-numeric:tabular-nums}
td.ticdc-ts small{display:block;color:var(--soft);white-space:nowrap}details summary{cursor:pointer}
td.code,pre{font-family:ui-monospace,'DejaVu Sans Mono',monospace;font-size:12px;white-space:pre-wrap;
overflow-wrap:anywhere}code{font:.93em ui-monospace,'DejaVu Sans Mono',monospace;
background:var(--tint);padding:1px 4px;border-radius:4px;overflow-wrap:anywhere}
td.word{white-space:nowrap}td.name{white-space:normal;overflow-wrap:normal}
td.long{min-width:15em}td.code:not(.word,.name){min-width:24ch}
pre{padding:8px 12px;background:var(--tint);border-radius:6px}@media screen{pre{white-space:pre;overflow-x:auto}}
tbody tr:last-child td{border-bottom:0}.figure{margin:10px 0 22px}.figure .plotly-graph-div{height:auto!important}
.paper{display:none}td a{color:inherit}
tr{scroll-margin-top:36px}tr:target td{background:rgba(230,159,0,.28)}
.figure:has(:target){outline:3px solid rgba(230,159,0,.7)}
@media (max-width:700px){body{padding:12px 12px 40px}h1{font-size:20px}p.answer{font-size:16px}
nav{overflow-x:auto;white-space:nowrap}nav a{display:inline-block;padding:3px 0}html{scroll-padding-top:48px}
table{width:auto;min-width:100%}}
@media screen and (min-width:1201px){td.code.long:not(.word,.name){min-width:38ch}
table:has(td.code.long) td.long:not(.code){min-width:11em}}
@media screen and (max-width:1200px){th{white-space:normal}th,td{padding:4px 7px}
td.word{overflow-wrap:normal;white-space:normal}td.long{min-width:9em}td.code:not(.word,.name){min-width:14ch}}
@media screen and (max-width:600px){th,td{padding:4px 5px}}
@media screen{.stacked thead{display:none}table.stacked,.stacked tbody{display:block}
.stacked tr{display:flex;flex-flow:row wrap;gap:2px 16px;padding:7px 10px;border-bottom:1px solid var(--line)}
.stacked :is(td,tbody th){display:block;border:0!important;padding:0;text-align:left;min-width:0!important}
.stacked td.long{flex:1 0 100%}
.stacked td:empty{display:none}.stacked td::before{content:attr(data-h) " ";color:var(--soft);font-size:12px}}
@page{size:A4;margin:14mm 12mm;@bottom-right{content:counter(page) ' / ' counter(pages);
font:9px system-ui,'DejaVu Sans',sans-serif;color:#5f6368}}
@media print{details:not([open])>summary::after{content:", in the HTML page"}
button,nav{display:none}.plotly-graph-div{mask:none!important}.scroll{background:none}
body{max-width:none;margin:0;padding:0;zoom:.66}
.scroll{max-height:none;overflow:visible;border:0}.figure{overflow:visible;break-inside:avoid;zoom:var(--on-paper,1)}
th{position:static}
tr,p,pre,h2,h3{break-inside:avoid}h2,h3,p.answer,p.kernel{break-after:avoid}
td,td.n,th,td.code:not(.word,.name){white-space:normal;min-width:5.5em}td.long{min-width:11em}td{overflow-wrap:anywhere}
td.code:not(.name) .ticdc-w{white-space:normal}td.code:not(.word,.name){min-width:16em}
td.word,td.name{white-space:normal;overflow-wrap:normal}td.ticdc-ts{white-space:nowrap}
.paper{display:block;font-style:italic}}
"""
"""On paper a page is as wide as the figures were drawn: 1,060 by 1,540 pixels at 0.66 are A4 between its margins.

A figure that is higher becomes smaller (``--on-paper``, which the script below sets).
"""

_SCRIPT = """
(function(){const T=%(themes)s,CONFIG=%(config)s,root=document.documentElement,pause=()=>new Promise(r=>setTimeout(r));
async function told(s){if(!s.dataset.gzip){return s.textContent}
const bytes=Uint8Array.from(atob(s.textContent),c=>c.charCodeAt(0));
return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).text()}
ticdcFit.whole(document.body);const tables=[...document.querySelectorAll('table:is(.ticdc-sorts,.dataframe)')]
.filter(t=>t.tHead?.rows.length===1);
for(const t of tables){const names=[...t.tHead.rows[0].cells].map(c=>c.textContent.trim());
for(const r of t.tBodies[0].rows){[...r.cells].forEach((c,i)=>c.dataset.h=names[i]??'')}}
function stack(){for(const t of tables){t.classList.remove('stacked');const [body]=t.tBodies,high=body.offsetHeight,
wide=t.offsetWidth>t.parentElement.clientWidth;if(innerWidth>700&&!(wide&&t.querySelector('td.long')))continue;
t.classList.add('stacked');if(!wide&&body.offsetHeight>=high)t.classList.remove('stacked')}}
stack();addEventListener('resize',stack);document.addEventListener('toggle',stack,true);
const all=[...document.querySelectorAll('.plotly-graph-div')],begun=new Map(),
texts=new Map(all.map(g=>[g,told(g.nextElementSibling)]));
async function draw(g){const f=g.ticdcFigure??=JSON.parse(await texts.get(g));texts.delete(g);
await ticdcFit.draw(Plotly,g,{data:f.data,layout:{...f.layout,template:T[root.dataset.theme]},frames:f.frames,
config:{...CONFIG,...f.config}})}
document.querySelectorAll('pre').forEach(function(p){p.tabIndex=0});
function first(g){if(!begun.has(g)){begun.set(g,draw(g).then(()=>ticdcFit(Plotly,g)).catch(function(e){
console.error(e);g.textContent='This figure cannot be drawn: '+e.message}))}return begun.get(g)}
function set(t){root.dataset.theme=t;for(const g of begun.keys()){
if(g.ticdcInWords){draw(g)}else if(g.layout){Plotly.relayout(g,{template:T[t]})}}}
document.getElementById('theme').onclick=function(){set(root.dataset.theme==='dark'?'light':'dark')};
function sized(){document.querySelectorAll('.figure').forEach(function(f){
f.style.setProperty('--on-paper',Math.min(1,1440/f.offsetHeight));const b=f.querySelector('.paper b'),
l=f.querySelector('.js-plotly-plot')?.layout,s=(l?.sliders??[])[0];if(b&&s){const at=s.steps[s.active??0]?.label??'',
m=(l.updatemenus??[]).find(u=>u.type!=='buttons'),of=m?m.buttons[m.active??0].label+', ':'';
b.textContent=(of+(s.currentvalue?.prefix??'')+at).trim()}})}
let shown='';addEventListener('beforeprint',function(){shown=root.dataset.theme;
if(shown==='dark'){set('light')}all.forEach(first)});addEventListener('beforeprint',sized);addEventListener('afterprint',function(){if(shown==='dark'){set('dark')}});
if(location.hash==='#dark'||location.hash!=='#paper'&&window.matchMedia('(prefers-color-scheme: dark)').matches){
root.dataset.theme='dark'}
(async function(){for(const g of all){await first(g);await pause()}await ticdcFit.page(Plotly);sized()})()})();
"""
"""Draws the figures one after the other, so that the page answers meanwhile; who prints earlier gets them all.

What draws a figure waits only for promises of its own, which a browser awaits between two listeners of an event.
"""

ON_PAPER = "On paper the slider is at <b>{start}</b>; the HTML page of the same name has its other {n} positions."


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table of plain values; ``code`` names columns of program text, numbers are set to the right.

    A cell may be a :class:`Link` or a tuple of them; ``ids`` names rows, one each, for links to lead to.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    code: Sequence[str] = ()
    ids: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """A cell that leads to another page of the same folder, or to another place of this one (``#id``)."""

    name: str
    to: str


@dataclass(frozen=True, slots=True)
class Sign:
    """A verdict: a sign and a word, in a colour; ``kind`` is ``good``, ``bad``, ``warn``, ``unsure`` or empty."""

    sign: str
    word: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Prose:
    """Sentences below the answer; indented ones belong to the one above; many are folded."""

    sentences: Sequence[str]


@dataclass(frozen=True, slots=True)
class Code:
    """Text of a file, to be copied."""

    text: str


@dataclass(frozen=True, slots=True)
class Folded:
    """A table of details, folded below its title."""

    title: str
    table: PageTable


Block = PageTable | Figure | Prose | Code | Folded | str


@dataclass(frozen=True, slots=True)
class Section:
    """One question of the report: its answer in a sentence, what cannot be proved, then tables and figures."""

    id: str
    title: str
    answer: str
    limits: Sequence[str] = ()
    body: Sequence[Block] = field(default_factory=tuple)
    same: str = ""  # the command or the call that shows the same


def text(value: object) -> str:
    """Any value from the data as HTML text; control characters except line ends and tabs become visible escapes."""
    return html.escape("" if value is None else visible(str(value), kept="\n\t"))


def said(sentence: str) -> str:
    """A sentence of ours as HTML text, code in it as code."""
    return in_html(visible(sentence, kept="\n\t"))


def page(name: str, *, lead: str, sections: Iterable[Section], back: str = "") -> str:
    """Build the whole file as one text; ``back`` is the page that lists it beside others."""
    parts = list(sections)
    up = f'<a href="{text(back)}">all logs</a>' if back else ""
    links = up + "".join(f'<a href="#{s.id}" title="{text(s.title)}">{s.id.replace("-", " ")}</a>' for s in parts)
    return "".join(
        [
            head(name),
            f'<p class="answer">{said(lead)}</p>\n<nav>{links}</nav>\n',
            *[section(s) for s in parts],
            foot(),
        ]
    )


def head(name: str, *, more_style: str = "") -> str:
    """The beginning of a page: looks, plotly.js, the name and the switch of the theme."""
    breaking = text(name).replace("/", "/<wbr>").replace("_", "_<wbr>")
    return "".join(
        [
            '<!DOCTYPE html>\n<html lang="en" data-theme="light">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            f"<title>{text(name)}</title>\n<style>{_STYLE}{more_style}</style>\n",
            f"<script>{library()}</script>\n</head>\n<body>\n",
            f'<header><h1>{breaking}</h1><button id="theme" type="button">dark / light</button></header>\n<main>\n',
        ]
    )


def foot() -> str:
    """The end of a page."""
    return f"</main>\n<script>{_script()}</script>\n</body>\n</html>\n"


@cache
def _script() -> str:
    script = _SCRIPT % {
        "themes": _in_page({t: template(t) for t in ("light", "dark")}),
        "config": _in_page(dict(CONFIG)),
    }
    return f"{FIT_JS}{COPY_JS}{script}"


@cache
def _policy() -> str:
    """What a page may do: run the scripts that we put into it and no other, and send no request."""
    hashes = (b64encode(sha256(script.encode()).digest()).decode() for script in (library(), _script()))
    scripts = " ".join(f"'sha256-{found}'" for found in hashes)
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data: blob:; font-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _in_page(value: object) -> str:
    """JSON that ends no script."""
    return as_json(value).replace("<", "\\u003c")


def section(s: Section) -> str:
    """A section as HTML."""
    limits = "".join(f"<p>{said(limit)}</p>\n" for limit in s.limits)
    limits = f'<div class="limits">{limits}</div>\n' if limits else ""
    body = "".join(_block(b, id=f"{s.id}-{i}") for i, b in enumerate(s.body))
    head = f'<section id="{s.id}">\n<h2>{text(s.title)}</h2>\n<p class="answer">{said(s.answer)}</p>\n'
    same = f"<p>The same: <code>{text(s.same)}</code></p>\n" if s.same else ""
    return f"{head}{limits}{body}{same}</section>\n"


_UNFOLDED = 6
"""Sentences that are not folded below an answer."""


def _block(block: Block, *, id: str) -> str:
    if isinstance(block, str):
        return f"<h3>{text(block)}</h3>\n"
    if isinstance(block, Prose):
        deep = [len(one) - len(one.lstrip()) for one in block.sentences]
        items = zip(block.sentences, deep, strict=True)
        listed = "".join(f'<li style="margin-left:{n / 2:g}em">{said(one.strip())}</li>' for one, n in items)
        few = len(block.sentences) <= _UNFOLDED
        head = f"<summary>{len(block.sentences)} more sentences</summary>"
        return f"<ul>{listed}</ul>\n" if few else f"<details>{head}<ul>{listed}</ul></details>\n"
    if isinstance(block, Code):
        return f"<pre>{text(block.text)}</pre>\n"
    if isinstance(block, Folded):
        return f"<details><summary>{text(block.title)}</summary>{_table(block.table)}</details>\n"
    if isinstance(block, PageTable):
        return _table(block)
    return figure(block.to_dict(), id=f"plot-{id}")


def figure(settings: Mapping[str, Any], *, id: str, packed: bool = False) -> str:
    """A figure as HTML, which the end of the page draws, with a sentence for paper where it has a slider.

    Its template is the page's, and a ``config`` is only what the page's differs in. ``packed`` settings take a fifth
    of the bytes, and can be read by the page alone.
    """
    layout = {k: v for k, v in settings["layout"].items() if k != "template"}
    height = f' style="height:{layout["height"]}px"' if "height" in layout else ""
    told = _in_page({**settings, "layout": layout})
    if packed:
        told = base64.b64encode(gzip.compress(told.encode(), mtime=0)).decode()
    told = f'<script type="{MIME}"{" data-gzip=1" if packed else ""}>{told}</script>'
    drawn = f'<div id="{id}" class="plotly-graph-div"{height}></div>{told}'
    return f'<div class="figure">{drawn}{_for_paper(settings)}</div>\n'


def _for_paper(fig: Mapping[str, Any]) -> str:
    sliders = fig.get("layout", {}).get("sliders") or []
    if not sliders or not fig.get("frames"):
        return ""
    steps, active = sliders[0].get("steps") or [{}], sliders[0].get("active") or 0
    prefix = (sliders[0].get("currentvalue") or {}).get("prefix", "")
    menus = [m for m in fig["layout"].get("updatemenus") or [] if m.get("type") != "buttons"]
    chosen = "".join(f"{m['buttons'][m.get('active') or 0]['label']}, " for m in menus[:1])
    start = f"{chosen}{prefix}{steps[active].get('label', '')}"
    return f'<p class="paper">{ON_PAPER.format(start=text(start.strip()), n=len(fig["frames"]) - 1)}</p>'


def _table(table: PageTable) -> str:
    kinds = [f' class="{kind}"' if (kind := _kind(table, i)) else "" for i in range(len(table.head))]
    head = "".join(f'<th{k} tabindex="0">{text(h)}</th>' for h, k in zip(table.head, kinds, strict=True))
    of_columns = list(zip(table.head, kinds, strict=True))
    cells = (zip(row, of_columns, strict=True) for row in table.rows)
    rows = [
        "".join(
            timed(_moment(h, v), _cell(v))
            or f"<td{k}>{_broken(_cell(v, said if 'long' in k and 'code' not in k else text), k)}</td>"
            for v, (h, k) in row
        )
        for row in cells
    ]
    names = [f' id="{text(i)}"' for i in table.ids] or [""] * len(rows)
    body = "".join(f"<tr{name}>{row}</tr>\n" for name, row in zip(names, rows, strict=True))
    of = text(f"Table of {', '.join(table.head[:3])}")
    scrolled = f'<div class="scroll" tabindex="0" role="group" aria-label="{of}">'
    rows_in = f'<table class="ticdc-sorts"><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>'
    tools = TABLE_TOOLS if len(table.rows) >= _EXPLORED else ""
    return f"{tools}{scrolled}{rows_in}</div>\n"


_EXPLORED = 8
"""Rows from which on a table has a field to filter it."""


_WORD = 28
"""Letters of a text that is never broken: ``2026-11-20 21:56:08.308 UTC``."""

_LONG = 60
"""Letters from which on a text has room, also where the table is wider than the page."""


def _kind(table: PageTable, column: int) -> str:
    """What the cells of a column are: numbers, program text, names that are not to be broken, long text."""
    cells = [row[column] for row in table.rows]
    if all(map(_is_number, cells)):
        return "n"
    texts = [c for c in cells if isinstance(c, str)]
    widest = max(map(len, texts), default=0)
    longest = max((len(re.sub("<.*?>", "", _cell(c))) for c in cells if isinstance(c, str | tuple)), default=0)
    pieces = [piece for t in texts for piece in re.split(r"[.-]", t)]
    is_plain = len(texts) == len(cells)
    is_word = is_plain and widest <= _WORD and not any(" " in t and not re.search(r"\d", t) for t in texts)
    is_name = is_plain and not is_word and not any(" " in p or len(p) > _WORD for p in pieces) and widest <= 3 * _WORD
    kinds = {"code": table.head[column] in table.code, "word": is_word, "name": is_name, "long": longest > _LONG}
    return " ".join(kind for kind, is_so in kinds.items() if is_so)


def _broken(cell: str, kind: str) -> str:
    """A name may end its line behind a dot, as it may behind a hyphen; a fingerprint behind 16 digits."""
    if "code" in kind:
        cell = re.sub(r"([0-9a-f]{16})(?=[0-9a-f]{8})", r"\1<wbr>", cell)
    return cell.replace(".", ".<wbr>") if "name" in kind else cell


def _moment(column: str, value: object) -> str:
    """The time of a TSO, in a column of them; empty for anything else."""
    found = str(value)
    return clock_words(int(found)) if column.endswith(" ts") and found.isdigit() else ""


def _is_number(value: object) -> bool:
    return value is None or isinstance(value, int | float)


def _cell(value: object, text: Callable[[str], str] = text) -> str:
    if isinstance(value, tuple):
        return ", ".join(_cell(v, text) for v in value)
    if isinstance(value, Sign):
        return f'<span class="sign {value.kind}">{text(value.sign)} {text(value.word)}</span>'
    if isinstance(value, Link):
        return f'<a href="{text(value.to)}">{text(value.name)}</a>'
    if isinstance(value, float):
        return f"{value:,.3f}" if value == value else ""
    return f"{value:,}" if isinstance(value, int) else text("" if value is None else str(value))


# The last section of every page: what it was made from.

_CODE = ("fingerprint", "setting", "value", "version")


def made_of(made_from: Provenance) -> Section:
    """Settings, versions and fingerprints of the inputs, as a section."""
    body: list[Block] = []
    for title, frame in made_from.frames().items():
        rows = [tuple(None if v != v else v for v in row) for row in frame.itertuples(index=False)]
        body += [title, PageTable(list(frame.columns), rows, code=_CODE)]
    answer = "The same inputs and versions give the same page."
    return Section("made-of", "What this was made from", answer, (), body)
