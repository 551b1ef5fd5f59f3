"""The audit's verdict above the tabs of a workbench, computed once the first tab is shown."""

from __future__ import annotations

import html
from collections.abc import Callable
from functools import partial

import ipywidgets as widgets
import pandas as pd
from pyspark.sql import SparkSession

from ticdc_lab.answers import Answer, complete_to
from ticdc_lab.answers.audit import SIGNS, counted
from ticdc_lab.figures.theme import count
from ticdc_lab.log import Log
from ticdc_lab.widgets.under_way import UnderWay

AT_ONCE = 300_000
"""Messages that are audited without being asked; a larger log is audited when somebody presses the button."""

_CAUSES = 5
_EVIDENCE = {"audit": "findings", "watermarks": "how complete", "why": "silent partitions", "settings": "settings"}
_COLORS = {
    "broken": "var(--jp-error-color1, #b00020)",
    "warned": "var(--jp-warn-color0, #a65300)",
    "not judged": "inherit",
    "kept": "var(--jp-success-color0, #1b5e20)",
}


class VerdictBlock(widgets.VBox):  # type: ignore[misc]
    """Guarantees kept, broken and not judged, causes, how complete the log is, silent partitions, and settings.

    ``spark``: gives the session. ``open_tab``: opens the tab with the evidence. ``is_displayed``: whether somebody
    looks at it; nothing is computed before.
    """

    def __init__(self, spark: Callable[[], SparkSession], open_tab: Callable[[str], object]) -> None:
        self._spark = spark
        self.is_displayed = False
        self.under_way, self.words = UnderWay(), widgets.HTML()
        self.words.add_class("ticdc-answer")
        self.check = widgets.Button(description="check guarantees", tooltip="audit what was read")
        self.check.on_click(lambda _: self.begin())
        self.links = widgets.HBox(layout={"flex_flow": "row wrap"})
        links = []
        for name, title in _EVIDENCE.items():
            button = widgets.Button(description=title, tooltip=f"open the tab {name}", layout={"width": "auto"})
            button.on_click(partial(lambda tab, _: open_tab(tab), name))
            links.append(button)
        self.links.children = links
        super().__init__([self.words, self.check, self.under_way, self.links])
        self._log: Log | None = None

    def put(self, log: Log) -> None:
        """Begin anew with a log, of which only is said that it was not checked."""
        self._log = log
        self.under_way.layout.display = "none"
        self.links.layout.display = "none"
        self.check.layout.display = None
        counts = log.change_log.counts
        n = "" if counts is None else f" of {count(counts.messages, 'message')}"
        self.words.value = f"<b>Guarantees{n} are not checked yet.</b>"

    def follow(self) -> None:
        """Compute it, if somebody looks, the log is small, and it is not there or under way."""
        counts = None if self._log is None else self._log.change_log.counts
        is_small = counts is not None and counts.messages <= AT_ONCE
        if self.is_displayed and is_small and self.check.layout.display is None:
            self.begin()

    def begin(self) -> None:
        """Compute it, unless it is under way."""
        log = self._log
        if log is None or self.under_way.is_busy:
            return
        self.check.layout.display = "none"
        self.under_way.layout.display = None

        def work() -> None:
            text = of(log)
            if self._log is log:  # else another source was opened meanwhile
                self.words.value = text
                self.links.layout.display = None
                self.under_way.layout.display = "none"

        def after() -> None:
            if self._log is log and self.links.layout.display == "none":
                self.check.layout.display = None

        self.under_way.begin(self._spark, "checking guarantees", work, then=after)


def of(log: Log) -> str:
    """The block's words as HTML."""
    answer, summary = log.audit(messages=False), log.summary_of("facts", "tables")
    causes = answer.frames["causes"]
    listed = "".join(
        f"<li>{html.escape(count(c['n'], c['severity'] if c['severity'] != 'info' else 'note'))}: "
        f"{html.escape(': '.join(filter(None, [c['table'], c['cause']])))}. {html.escape(c['do'])}</li>"
        for c in causes.head(_CAUSES).to_dict("records")
    )
    some = f" (the first {_CAUSES} of {len(causes)})" if len(causes) > _CAUSES else ""
    causes_said = f"Causes, worst first{some}:<ul>{listed}</ul>" if listed else ""
    sampled = [limit for limit in answer.limits if "sample" in limit][:1]
    rest = [complete_to(summary), *summary.early_ends, log.settings().finding, *sampled]
    paragraphs = "".join(f"<div>{html.escape(text)}</div>" for text in rest)
    return f"<div>{html.escape(counted(answer.frames['verdict']))}</div>{said(answer)}{causes_said}{paragraphs}"


def said(answer: Answer) -> str:
    """The finding; of an audit also the verdict of each guarantee, with its sign: those without findings folded."""
    text = f"<b>{html.escape(answer.finding)}</b>"
    verdict = answer.frames.get("verdict", pd.DataFrame())
    lines: dict[str, list[str]] = {}
    for g in verdict.to_dict("records"):
        why = f": {html.escape(str(g['why']))}" if g["why"] else ""
        line = f"{SIGNS[g['verdict']]} {html.escape(g['guarantee'].replace('_', ' '))}, {g['verdict']}{why}"
        lines.setdefault(str(g["verdict"]), []).append(line)
    for word, those in lines.items():
        color = f'style="color:{_COLORS[word]}"'
        if word in ("broken", "warned"):
            text += "".join(f"<br><span {color}>{line}</span>" for line in those)
        else:
            head = f"{SIGNS[word]} {len(those)} {word}"
            text += f"<details><summary {color}>{head}</summary>{'<br>'.join(those)}</details>"
    return text
