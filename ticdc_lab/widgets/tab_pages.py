"""Tabs that are computed when they are opened, each with its own progress."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import ipywidgets as widgets
from pyspark.sql import SparkSession

from ticdc_lab.answers import Answer
from ticdc_lab.engine import engine_of, parallelism, speeds
from ticdc_lab.errors import ContractError
from ticdc_lab.log import Log
from ticdc_lab.widgets.choosing import filters
from ticdc_lab.widgets.evidence import Evidence
from ticdc_lab.widgets.linking import Linked
from ticdc_lab.widgets.panel import Panel
from ticdc_lab.widgets.tabs import TABS
from ticdc_lab.widgets.under_way import UnderWay
from ticdc_lab.widgets.verdict_block import VerdictBlock
from ticdc_lab.words import in_html


class TabPage(widgets.VBox):  # type: ignore[misc]
    """One tab: what is computed for it, then its panel. ``panel``: None before it was computed."""

    def __init__(self, name: str, spark: Callable[[], SparkSession]) -> None:
        self.name, self.tab, self._spark = name, TABS[name], spark
        self.under_way = UnderWay()
        self.again = widgets.Button(description="compute", tooltip="compute what this tab shows")
        self.again.on_click(lambda _: self._begin())
        self.above, self.cannot_tell, self.evidence = widgets.VBox([]), widgets.HTML(), Evidence()
        self.code = widgets.HTML()
        self.code.add_class("ticdc-code")
        super().__init__([self.under_way, self.above], layout={"min_height": "480px"})
        self.panel: Panel[Any] | None = None
        self._begin: Callable[[], None] = lambda: None

    def compute(self, log: Log, shown: Callable[[TabPage], None]) -> None:
        """Compute it, unless it is there or under way."""
        if self.panel is not None or self.under_way.is_busy:
            return
        self._begin = lambda: self.compute(log, shown)
        self.above.children = []
        step, n_events = _step(self.name, log), _events(log)
        compiling_s = self.tab.compiling_s()
        doing = self.tab.doing + ("; its kernels are compiled first, once on this machine" if compiling_s else "")
        expected_s = compiling_s + (speeds.expected_s(step, n_events) or 0.0) or None

        def work() -> None:
            begun = time.monotonic()
            panel = self.tab.make(log)
            if self.tab.views is not None:
                self.evidence.attach(partial(self.tab.views, log))
            self.evidence.on_select(panel.choose)
            answer = None if self.tab.answer is None else self.tab.answer(log)
            if not compiling_s:  # it would mislead all later estimates
                speeds.note(step, messages=n_events, seconds=time.monotonic() - begun)
            self._tell(answer, panel)
            shown_below = [self.cannot_tell, self.code, self.evidence]
            self.children = [self.under_way, self.above, panel.widget, *shown_below]  # views taken out complain
            self.panel = panel
            self.under_way.layout.display = "none"
            shown(self)

        def after() -> None:
            if self.panel is None:
                self.above.children = [self.again]

        self.under_way.begin(self._spark, doing, work, expected_s=expected_s, then=after)

    def _tell(self, answer: Answer | None, panel: Panel[Any]) -> None:
        """The sentences above the panel that its figure, or for an audit the verdict above the tabs, does not have;
        below it the limits and the frames.
        """
        sentence = widgets.HTML()
        sentence.add_class("ticdc-answer")
        self.cannot_tell.value = "" if answer is None else _limits(answer)
        self.cannot_tell.add_class("ticdc-answer")
        frames, at_first = {} if answer is None else answer.frames, panel.value

        def follow(_: Any = None) -> None:
            call = self.tab.code(panel)
            same = self.tab.code_of(panel, at_first=at_first)
            self.code.value = f'<code title="the same by code">{html.escape(same)}</code>' if same else ""
            unsaid = "" if answer is None or self.name == "audit" else f"{answer.finding.rstrip('.')}."
            unsaid = " ".join(unsaid.replace(f"{panel.figure.finding}.", "").split())
            first, *rest = re.split(r"(?<=[.]) (?=[A-Z])", unsaid, maxsplit=1)  # the answer; the rest explains it
            more = "".join(
                f"<details><summary>more</summary>{in_html(said, dates_whole=True)}</details>" for said in rest
            )
            sentence.value = f"<b>{in_html(first, dates_whole=True)}</b>{more}"
            sentence.layout.display = None if unsaid else "none"
            self.evidence.show({**frames, **panel.frames}, code=call, gives_rows=self.tab.gives_rows)

        panel.view.observe(follow, names="figure_json")
        self.above.children = [sentence]
        follow()


class TabPages:
    """The tabs of :data:`ticdc_lab.widgets.tabs.TABS` on one log. ``spark``: gives the session."""

    def __init__(self, spark: Callable[[], SparkSession]) -> None:
        self._spark = spark
        self.names = tuple(TABS)
        self.widget = widgets.Tab()
        self.verdict = VerdictBlock(spark, self.open)
        self.pages: dict[str, TabPage] = {}
        self.log: Log | None = None
        self._linked = Linked()
        self.widget.observe(lambda change: self._open_at(change["new"]), names="selected_index")

    def show(self, log: Log, linked: Linked) -> None:
        """Restart with a log; the first tab is opened."""
        self.cancel()
        self.log, self._linked = log, linked
        self.verdict.put(log)
        self.pages = {name: TabPage(name, self._spark) for name in TABS}
        self.widget.children = list(self.pages.values())
        for i, tab in enumerate(TABS.values()):
            self.widget.set_title(i, tab.title)
        self.widget.selected_index = 0
        self._open_at(0)

    @property
    def current(self) -> str:
        """The tab that is open."""
        return self.names[self.widget.selected_index or 0]

    @property
    def shown(self) -> Panel[Any] | None:
        """The panel of the tab that is open, else any other; None before the first is there."""
        ordered = sorted(self.pages, key=lambda name: name != self.current)
        return next((p for name in ordered if (p := self.pages[name].panel) is not None), None)

    def open(self, name: str) -> TabPage:
        """Open a tab; :meth:`panel` waits for it."""
        if name not in self.pages:
            raise ContractError(
                f"There is no tab {name!r}; there are {list(TABS)}.", hint="Enter a source and press `preview` first."
            )
        self.widget.selected_index = self.names.index(name)
        self._open_at(self.widget.selected_index)
        return self.pages[name]

    def panel(self, name: str) -> Panel[Any]:
        """The panel of a tab, which is opened and waited for unless it is there.

        Raises TiCDCLabError: it cannot be computed on this log, as the tab shows.
        """
        if name in self.pages and (there := self.pages[name].panel) is not None:
            return there
        page = self.open(name)
        if page.under_way.running is not None:
            page.under_way.running.wait()
        assert page.panel is not None
        return page.panel

    def cancel(self) -> None:
        """Stop what is computed."""
        for page in self.pages.values():
            page.under_way.cancel()
        self.verdict.under_way.cancel()

    def _open_at(self, index: int | None) -> None:
        if index is not None and self.log is not None:
            self.pages[self.names[index]].compute(self.log, self._shown)

    def _shown(self, page: TabPage) -> None:
        assert page.panel is not None and self.log is not None
        if self.pages.get(page.name) is not page:  # of a log that was read before, computed to its end meanwhile
            return
        page.panel.leave_out(filters(page.panel.controls))
        page.panel.view.keeps_state = False  # the line above the tabs saves and opens all of them
        self._linked.add(page.panel)
        self.verdict.follow()
        if page.name == "audit":
            self.verdict.show(self.log)
            page.panel.controls["finding"].button.on_click(lambda _: self.open("messages"))


class OpenPanels(Mapping[str, Panel[Any]]):
    """Panels by name: asked for, a tab is opened; gone through, those that are open."""

    def __init__(self, pages: TabPages, *, before: Callable[[], object]) -> None:
        self._pages, self._before = pages, before

    def __getitem__(self, name: str) -> Panel[Any]:
        self._before()
        return self._pages.panel(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name, page in self._pages.pages.items() if page.panel is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _limits(answer: Answer) -> str:
    """What the log cannot show, folded; nothing if it shows all."""
    said = "".join(f"<li>{in_html(text, dates_whole=True)}</li>" for text in answer.limits)
    return f"<details><summary>What the log cannot show</summary><ul>{said}</ul></details>" if said else ""


def _step(name: str, log: Log) -> str:
    """How :mod:`ticdc_lab.engine.speeds` names the computing of a tab."""
    spark = log.events.sparkSession
    return f"tab {name}, {engine_of(spark)}, {parallelism(spark)} tasks"


def _events(log: Log) -> int:
    n = log.change_log.counts
    return 0 if n is None else n.events if log.change_log.sample is None else n.kept
