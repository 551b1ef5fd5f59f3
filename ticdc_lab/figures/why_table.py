"""The "why" of a decision as a table: candidates down, filters across, a cross with the reason, then the score."""

from __future__ import annotations

from collections.abc import Sequence

from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.pd_run import rows_of_texts
from ticdc_lab.figures.theme import finish, label, sentence, wrapped
from ticdc_lab.pd_core.explained import Explained
from ticdc_lab.pd_core.filters import SOURCE
from ticdc_lab.simulate.pd.looking.decisions import CandidateRow, DecisionTable, choice_of, word
from ticdc_lab.simulate.pd.world.recording import Decision
from ticdc_lab.words import count, rounded

_ROW_PX, _HEAD_PX = 29, 34
_MOST = 16
_FILLS = {"chosen": "rgba(0,158,115,0.28)", "refused": "rgba(213,94,0,0.10)", "other": "rgba(128,128,128,0.08)"}
_FILTERS = {
    "state": "state", "excluded": "no peer yet", "rule-fit": "rule, isolation", "distinct-score": "better place",
    "storage-threshold": "space", "special-use": "special use", "isolation": "isolation", "rule-leader": "may lead",
    "label-constraints": "labels",
}  # fmt: skip
_NOTE = (
    "Each row is a store in a role, each column a filter: ✔ it lets the store through, ✖ it does not, with the "
    "reason; – it was not asked any more. The last columns compare the stores that passed all filters. Bold: chosen."
)


def why_table(told: Explained | Decision) -> Figure:
    """Draw why a decision came out as it did, also where nothing was done.

    Parameters
    ----------
    told
        A decision's reasons, or one of a recording's decisions.
    """
    explained = told.told if isinstance(told, Decision) else told
    choice = choice_of(explained)
    title = told_of(told)
    if not choice.rows:
        what = "No candidate was looked at: what decided was known before any region was drawn."
        return sentence(title, f"{what} {label(choice.limit)}".strip())
    shown, cut = _shown(choice.rows)
    names = [_FILTERS.get(f, label(f)) for f in choice.filters]
    heads = ["store", *names, "score", "so it is"]
    columns = [
        [_bold(f"{r.role} {r.store}", r) for r in shown],
        *([_cell(r, f, choice.filters) for r in shown] for f in choice.filters),
        [_bold("" if r.score is None else f"{rounded(r.score, 6)} {label(r.of)}", r) for r in shown],
        [_bold(label(r.verdict), r) for r in shown],
    ]
    fills = [_FILLS["chosen" if r.chosen else "refused" if r.refused else "other"] for r in shown]
    table = rows_of_texts(
        heads, columns, fills, head_px=_HEAD_PX, row_px=_ROW_PX, domain={"x": [0, 1], "y": [0, 1]},
        columnwidth=[1.1, *[1.5] * len(names), 1.5, 1.3],
    )  # fmt: skip
    more = f" {count(cut, 'more store was', 'more stores were')} looked at." if cut else ""
    height = 150 + _HEAD_PX + _ROW_PX * (len(shown) + 1)
    return finish(
        Figure(table), title=title, note=_NOTE + more + _compared(choice), height=height, note_below_px=10,
        least_px=760, left_px=20,
    )  # fmt: skip


def told_of(told: Explained | Decision) -> str:
    """Describe what was decided, when, by whom and why."""
    explained = told.told if isinstance(told, Decision) else told
    head = ""
    if isinstance(told, Decision):
        about = f" for region {told.region}" if told.region else ""
        head = f"At {told.at_us / 1e6:,.1f} s {label(told.by)}{about}: "
    if not explained.operators:
        limit = f" ({label(explained.limit)})" if explained.limit and explained.limit not in explained.because else ""
        return f"{head}nothing is done, {label(explained.because, most=400)}{limit}"
    op = explained.operators[0]
    region = "" if head and isinstance(told, Decision) and told.region == op.region else f" of region {op.region}"
    ways = {(o.region, o.brief) for o in explained.operators}
    more = f", one of {len(ways)}" if len(ways) > 1 else ""
    score = ""
    if op.source_score is not None and op.target_score is not None:
        score = f"; score {rounded(op.source_score, 5)} against {rounded(op.target_score, 5)}"
    return f"{head}{label(op.brief, most=100)}{region}{more}{score}"


def _shown(rows: Sequence[CandidateRow]) -> tuple[list[CandidateRow], int]:
    """The most telling: chosen ones, compared ones, then one refusal of each kind, in their order."""
    if len(rows) <= _MOST:
        return list(rows), 0
    first = sorted(range(len(rows)), key=lambda k: (not rows[k].chosen, rows[k].score is None, k))[:_MOST]
    kept = [rows[k] for k in sorted(first)]
    return kept, len({r.store for r in rows} - {r.store for r in kept})


def _bold(text: str, r: CandidateRow) -> str:
    return f"<b>{text}</b>" if r.chosen else text


def _cell(r: CandidateRow, name: str, filters: Sequence[str]) -> str:
    if name in r.refused:
        return _bold(f"✖ {label(word(r.refused[name]))}", r)
    refused_at = min((filters.index(f) for f in r.refused), default=len(filters))
    asked = filters.index(name) < refused_at and r.role != SOURCE
    return _bold("✔" if asked or (r.role == SOURCE and name == "state" and not r.refused) else "–", r)


def _compared(choice: DecisionTable) -> str:
    if not choice.compared or choice.operators:
        return ""
    best = max(choice.compared, key=lambda c: c.source_score - c.target_score)
    source, target = rounded(best.source_score, 5), rounded(best.target_score, 5)
    gap = f"{source} of store {best.source} against {target} of store {best.target}"
    return wrapped(f" The nearest that came to pay: {gap}, tolerance and what runs included.", width=400)
