"""A watch while it runs: lag, rates, findings and the last messages, redrawn as long as it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import pandas as pd
import pyarrow as pa

from ticdc_lab import figures
from ticdc_lab.answers.summary import exact
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.theme import label, sentence
from ticdc_lab.watch.metrics import WatchSample
from ticdc_lab.watch.running import Watch, unsettled
from ticdc_lab.widgets.controls import picture
from ticdc_lab.widgets.drawing import Drawn, in_thread
from ticdc_lab.widgets.panel import Panel
from ticdc_lab.words import count

_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class WatchPanelView:
    """What the panel shows: the picture."""

    picture: str


def watch_panel(watch: Watch, *, interval_s: float = 1.0) -> Panel[WatchPanelView]:
    """Build a panel of a watch that runs, such as :func:`ticdc_lab.watch` gives.

    It reads the watch's state in this process, so that a page that is loaded again shows how far it is by then.

    Parameters
    ----------
    watch
        The watch.
    interval_s
        How often it is redrawn until the watch ends; 0 for only when :meth:`Panel.redraw` is called.
    """

    def draw(view: WatchPanelView) -> Drawn:
        return Drawn(_PICTURES[view.picture](watch), "as the watch was then")

    panel = Panel(WatchPanelView, controls={"picture": picture(_PICTURES)}, draw=draw, name="watch")

    def follow() -> None:
        ended = False
        while not ended:
            try:
                ended = watch.wait(interval_s)
            except Exception:  # shown in the title
                ended = True
            panel.redraw()

    if interval_s:
        in_thread(follow)
    return panel


def _headline(watch: Watch) -> str:
    """How it goes, in a sentence."""
    samples, found = list(watch.history), unsettled(list(watch.findings.values()))
    name = label(watch.source.rpartition("/")[2])
    lags = samples[-1].lag_s.values() if samples else ()
    most_s = max(lags, default=0.0)
    behind = f"{most_s:,.1f} s" if most_s < _HOUR_S else f"{most_s / _HOUR_S:,.1f} h"
    lag = f"{behind} behind" if lags else "without a watermark so far"
    rates = _rates(samples)["rows_per_s"].tail(5)
    speed = f", {rates.mean():,.0f} row changes/s" if len(rates) else ""
    state = f"{name}: {lag}{speed}, {count(len(found), 'finding')}"
    if watch.failure is not None:
        return f"{state}; ended by an error: {label(watch.failure, most=200)}"
    return f"{state}; ended" if watch.wait(0) else state


def _rates(samples: list[WatchSample]) -> pd.DataFrame:
    rows = [
        (b.at_s * 1000, (b.rows - a.rows) / (b.at_s - a.at_s), (b.messages - a.messages) / (b.at_s - a.at_s))
        for a, b in pairwise(samples) if b.at_s > a.at_s
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["at_ms", "rows_per_s", "messages_per_s"], dtype=float)


def _curves(watch: Watch) -> Figure:
    samples = list(watch.history)
    lags = [(s.at_s * 1000, *at, lag) for s in samples for at, lag in s.lag_s.items()]
    frame = pd.DataFrame(lags, columns=["at_ms", "topic", "partition", "lag_s"])
    return figures.watch_curves(frame, _rates(samples), title=_headline(watch))


def _findings(watch: Watch) -> Figure:
    found = sorted(unsettled(list(watch.findings.values())), key=lambda f: (f.severity != "error", -f.number))
    if not found:
        return sentence(_headline(watch), "Nothing is found: neither open nor pending.")
    names = ("number", "status", "severity", "guarantee", "table", "key", "partition", "offset", "commit_ts", "message")
    frame = exact(pa.Table.from_pylist([{n: getattr(f, n) for n in names} for f in found]))
    note = "Errors first, the newest of them on top; `ticdc-lab watch show NUMBER` prints a finding's messages."
    return figures.listing(frame, title=_headline(watch), note=note)


def _messages(watch: Watch) -> Figure:
    last = watch.last_events
    if last is None or not last.num_rows:
        return sentence(_headline(watch), "No message was read since the watch began.")
    frame = exact(last).iloc[::-1].reset_index(drop=True)
    note = "The last messages that were read, the newest on top; a message with error_class could not be decoded."
    return figures.listing(frame, title=_headline(watch), note=note)


_PICTURES: Mapping[str, Callable[[Watch], Figure]] = {
    "lag and rates": _curves, "findings": _findings, "last messages": _messages,
}  # fmt: skip
