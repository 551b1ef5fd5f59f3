"""A page that lists every record of the real PD beside our answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ticdc_lab.errors.whole_files import write_whole
from ticdc_lab.figures.pd_run import verdict_bars
from ticdc_lab.report.page import PageTable, Section, page
from ticdc_lab.simulate.pd.replay import Replayed
from ticdc_lab.words import count, percent

HEAD = ("line", "record", "ours", "the real PD", "verdict", "why")
_CODE = ("ours", "the real PD")
_VERDICTS = {True: "agrees", False: "disagrees", None: "not judged"}


def pd_replay_page(replayed: Replayed, name: str, out: str | Path, more: Sequence[Section] = ()) -> Path:
    """Write a page with every record of a file, kind by kind, beside what our PD answers.

    ``replayed``: from :func:`ticdc_lab.simulate.pd.replay.replay`. ``name``: what the page is called: the file.
    ``out``: the file to write; its folder is made. ``more``: sections after the records'. Returns: ``out``. The
    file needs no network; the same records give the same bytes.
    """
    target = Path(out)
    target.parent.mkdir(parents=True, exist_ok=True)
    sections = [_overview(replayed), *_disagreements(replayed), *map(_of_kind, _kinds(replayed)), *more]
    write_whole(target, page(f"The real PD beside ours: {name}", lead=_lead(replayed), sections=sections))
    return target


def _lead(r: Replayed) -> str:
    rest = [f"{r.not_judged:,} not judged"] if r.not_judged else []
    rest += [f"{r.malformed:,} malformed"] if r.malformed else []
    wrong = r.total - r.agree - r.not_judged - r.malformed
    rest += [f"{wrong:,} with another answer"] if wrong else []
    return f"{r.agree:,} of {count(r.total, 'record')} get the real PD's answer{'; ' if rest else ''}{', '.join(rest)}."


def _overview(r: Replayed) -> Section:
    kinds = pd.DataFrame(r.by_kind(), columns=["kind", "records", "agree", "disagree", "not judged", "malformed"])
    return Section("overview", "How many agree", _lead(r), (), [verdict_bars(kinds)])


def _disagreements(r: Replayed) -> list[Section]:
    wrong = [e for e in r.records if e["agrees"] is not True]
    if not wrong:
        return []
    answer = (
        f"{count(len(wrong), 'record')}: those with another answer, and those that are not judged, with the reason."
    )
    return [Section("wrong", "What does not agree", answer, (), [_table(wrong)])]


def _kinds(r: Replayed) -> list[Replayed]:
    return [Replayed(tuple(e for e in r.records if e["kind"] == k["kind"])) for k in r.by_kind()]


def _of_kind(r: Replayed) -> Section:
    kind = str(r.records[0]["kind"])
    anchor = "kind-" + re.sub(r"\W+", "-", kind)
    return Section(anchor, kind.replace("_", " "), _lead(r), (), [_table(r.records)])


def _table(records: Sequence[Mapping[str, Any]]) -> PageTable:
    rows = [
        (e["line"], e["id"] or "", _ours(e), _told(e["file"]), _VERDICTS[e["agrees"]], e["because"]) for e in records
    ]
    return PageTable(HEAD, rows, code=_CODE)


def _ours(entry: Mapping[str, Any]) -> str:
    """Give all that we may answer, with how likely each is, where there are several."""
    legal = entry.get("legal")
    if not legal:
        return _told(entry["ours"])
    return "\n".join(f"{_told({k: v for k, v in o.items() if k != 'chance'})} ({percent(o['chance'])})" for o in legal)


def _told(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(v, dict) for v in value):
        return "\n".join(map(_told, value))
    if not isinstance(value, dict):
        return "" if value is None else str(value)
    return ", ".join(f"{k} {_told(v) if isinstance(v, dict) else v}" for k, v in value.items())
