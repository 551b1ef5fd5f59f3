"""Work that takes a while, as a notebook shows it: how far it is, a button to stop it, and why it failed."""

from __future__ import annotations

import html
from collections.abc import Callable
from threading import Lock

import ipywidgets as widgets
from pyspark.sql import SparkSession

from ticdc_lab.engine.running import Cancelled, Measured, Progress, Running
from ticdc_lab.widgets.problem import Problem

_MOST = 1.0
_WRONG = "border-left:4px solid var(--jp-error-color1,#d32f2f);padding-left:8px;line-height:1.5"
"""Also where no figure has brought its style sheet yet."""


class UnderWay(widgets.VBox):  # type: ignore[misc]
    """A line of progress, of the same height whether something runs or not.

    ``running``: the last work; None before the first. ``problem``: why the last work gave nothing; None where it did,
    runs or was stopped.
    """

    def __init__(self) -> None:
        self.bar = widgets.FloatProgress(value=0.0, min=0.0, max=_MOST, layout={"width": "220px"})
        self.words = widgets.HTML()
        self.stop = widgets.Button(description="cancel", tooltip="stop it; the session stays usable", disabled=True)
        self.stop.on_click(lambda _: self.cancel())
        self.wrong = widgets.HTML(layout={"display": "none"})
        self.wrong.add_class("ticdc-wrong-words")
        row = widgets.HBox([self.bar, self.stop, self.words], layout={"align_items": "center", "min_height": "36px"})
        super().__init__([row, self.wrong])
        self.running: Running[None] | None = None
        self._beginning = Lock()
        self.problem: Problem | None = None
        self._shown(False)

    @property
    def is_busy(self) -> bool:
        """Whether something runs."""
        return self.running is not None and self.running.state == "running"

    def begin(
        self, spark: SparkSession | Callable[[], SparkSession], what: str, work: Callable[[], None], *,
        measured: Measured | None = None, expected_s: float | None = None, then: Callable[[], None] | None = None,
    ) -> Running[None]:  # fmt: skip
        """Run something in a thread and show how far it is.

        ``spark``, ``what``, ``work``, ``measured``, ``expected_s``: as for :class:`ticdc_lab.engine.running.Running`.
        ``then``: called at the end, with any outcome.
        """
        self.say(None)
        self.bar.value, self.bar.bar_style = 0.0, "info"
        self.words.value = f'<span role="status">{html.escape(what)} …</span>'
        self.stop.disabled = False
        self._shown(True)

        def after(done: Running[None]) -> None:
            with self._beginning:  # it may be over before it is known here
                self._settle(done)
            if then is not None:
                then()

        with self._beginning:
            self.running = Running(
                spark, what, work, measured=measured, expected_s=expected_s, said=self._tell, after=after
            )
            return self.running

    def cancel(self) -> None:
        """Stop it."""
        if self.is_busy and self.running is not None:
            self.stop.disabled = True
            self.words.value = "stopping …"
            self.running.cancel()

    def say(self, problem: Problem | None) -> None:
        """Show what is wrong, or that nothing is."""
        self.problem = problem
        self.wrong.layout.display = "none" if problem is None else None
        self.wrong.value = "" if problem is None else _said(problem)

    def _tell(self, progress: Progress) -> None:
        if not self.stop.disabled:
            self.bar.value = max(self.bar.value, _part(progress))
            self.words.value = html.escape(progress.words)

    def _settle(self, done: Running[None]) -> None:
        self.stop.disabled = True
        error = done.error
        if error is None:
            self._shown(False)
        elif isinstance(error, Cancelled):
            self.bar.bar_style, self.words.value = "warning", html.escape(error.message)
        else:
            self._shown(False)
            self.say(Problem.of(error))

    def _shown(self, on: bool) -> None:
        self.bar.layout.visibility = self.stop.layout.visibility = "visible" if on else "hidden"
        (self.remove_class if on else self.add_class)("ticdc-idle")
        if not on:
            self.words.value = ""


def _part(progress: Progress) -> float:
    """The part that is done: of messages as counted; else by time, as the number of tasks grows."""
    if progress.unit == "messages":
        return progress.share or 0.0
    if progress.left_s is None or progress.elapsed_s <= 0:
        return 0.0
    return progress.elapsed_s / (progress.elapsed_s + progress.left_s)


def _said(problem: Problem) -> str:
    hint = f"<br>{html.escape(problem.hint)}" if problem.hint else ""
    trace = f"<details><summary>trace</summary><pre>{html.escape(problem.trace)}</pre></details>"
    more = hint + (trace if problem.trace else "")
    return f'<div role="alert" style="{_WRONG}"><b>{html.escape(problem.message)}</b>{more}</div>'
