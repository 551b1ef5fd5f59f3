"""The audit's verdict above the tabs of a workbench, computed once the first tab is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import ipywidgets as widgets
from pyspark.sql import SparkSession

from ticdc_lab.answers import complete_to
from ticdc_lab.answers.audit import SIGNS, alike
from ticdc_lab.answers.summary import is_small
from ticdc_lab.answers.transactions import torn_briefly
from ticdc_lab.facts.limits import missing_data
from ticdc_lab.log import Log
from ticdc_lab.widgets.under_way import UnderWay
from ticdc_lab.words import count, in_html, some_of

_CAUSES, _NAMED = 20, 2
_EVIDENCE = {"audit": "findings", "watermarks": "how complete", "why": "silent partitions", "settings": "settings"}
"""Tabs with the evidence, and the labels of the buttons that open them."""


class VerdictBlock(widgets.HBox):  # type: ignore[misc]
    """Guarantees kept, broken and not judged, causes, how complete the log is, silent partitions, and settings.

    ``spark``: gives the session. ``open_tab``: opens the tab with the evidence. ``is_displayed``: whether it is
    visible; nothing is computed before.
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
        self.add_class("ticdc-verdict")
        self._log: Log | None = None

    def put(self, log: Log) -> None:
        """Restart with a log, marked as not checked."""
        self._log = log
        self.under_way.layout.display = "none"
        self.links.layout.display = "none"
        self.check.layout.display = None
        counts = log.change_log.counts
        n = "" if counts is None else f" of {count(counts.messages, 'message')}"
        self.words.value = f"<b>Guarantees{n} are not checked yet.</b>"

    def follow(self) -> None:
        """Compute it, if it is visible, the log is small, and it is not there or under way."""
        counts = None if self._log is None else self._log.change_log.counts
        if self.is_displayed and is_small(counts) and self.check.layout.display is None:
            self.begin()

    def show(self, log: Log) -> None:
        """Compute it here and now, and show it unless another source was opened meanwhile."""
        text = of(log)
        if self._log is log:
            self.words.value = text
            self.links.layout.display = None
            self.check.layout.display = self.under_way.layout.display = "none"

    def begin(self) -> None:
        """Compute it, unless it is under way."""
        log = self._log
        if log is None or self.under_way.is_busy:
            return
        self.check.layout.display = "none"
        self.under_way.layout.display = None

        def after() -> None:
            if self._log is log and self.links.layout.display == "none":
                self.check.layout.display = None

        self.under_way.begin(self._spark, "checking guarantees", lambda: self.show(log), then=after)


def of(log: Log) -> str:
    """The block's words as HTML, folded: each head names what is worst of it."""
    answer, summary, known = log.audit(messages=False), log.summary_of("facts", "tables"), log.settings()
    judged, causes = answer.frames["verdict"], answer.frames["causes"]
    torn = torn_briefly(replace(summary, suspects=answer.frames.get("suspects")))
    folds = [(f"! {torn}", list(answer.details), "warned")] if torn else []
    for word, sign in SIGNS.items():
        mine = judged[judged["verdict"] == word]
        names = [name.replace("_", " ") for name in mine["guarantee"]]
        named = f": {some_of(names, most=_NAMED)}" if word in ("broken", "warned") else ""
        lines = [
            f"{sign} {', '.join(some).replace('_', ' ')}{f': {why}' if why else ''}"
            for _, some, _, _, why in alike(mine)
        ]
        folds.append((f"{sign} {len(names)} {word}{named}", lines, word.replace(" ", "-")))
    listed = []
    for c in causes.head(_CAUSES).to_dict("records"):
        n = count(c["n"], c["severity"] if c["severity"] != "info" else "note")
        listed.append((f"{n}: {': '.join(filter(None, [c['table'], c['cause']]))}", c["do"]))
    some = f", the first {_CAUSES}" if len(causes) > _CAUSES else ""
    folds += [
        (f"{count(len(causes), 'cause')}{some}: {head}", [f"{said}. {do}" for said, do in listed], "")
        for head, _ in listed[:1]
    ]
    early, sampled = summary.early_ends, [limit for limit in answer.limits if "sample" in limit][:1]
    missing = missing_data(summary.counts)
    head = f"! {early[0].partition(':')[0]}" if early else f"! {missing} is unknown" if missing else "how complete"
    folds.append((head, [complete_to(summary), *early, *sampled], "warned" if early or missing else ""))
    wrong = known.values["contradictions"]
    head = count(len(known.frame), "known setting") + (f", {len(wrong)} against the log" if wrong else "")
    lines = [
        f"{r['setting']} = {r['value']} ({r['known from']}, {r['how surely']})" for r in known.frame.to_dict("records")
    ]
    folds.append((f"! {head}" if wrong else head, [*wrong, *lines], "warned" if wrong else ""))
    return "".join(
        f'<details><summary class="{kind}">{in_html(head, dates_whole=True)}</summary>'
        f"{''.join(f'<div>{in_html(line, dates_whole=True)}</div>' for line in lines)}</details>"
        for head, lines, kind in folds
        if lines
    )
