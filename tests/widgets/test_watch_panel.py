"""A watch looked at while it runs: lag, rates, findings and the last messages."""

from __future__ import annotations

import gzip
import threading
from dataclasses import replace

import pytest
from conftest import golden

from ticdc_lab.watch.metrics import WatchSample
from ticdc_lab.watch.running import Watch
from ticdc_lab.widgets import watch_panel
from ticdc_lab.widgets.workbench import Workbench

DUP = golden("messages_open-protocol_small-dup-restart.jsonl.gz")


class Clock:
    """Seconds that pass with each question."""

    def __init__(self) -> None:
        self.at_s = 1795212000.0

    def __call__(self) -> float:
        self.at_s += 0.5
        return self.at_s


@pytest.fixture
def watch(tmp_path):
    """One that has watched a recording to its end."""
    lines = tmp_path / "orders.jsonl"
    with gzip.open(DUP, "rb") as file:
        every = file.read().splitlines(keepends=True)
    lines.write_bytes(b"".join(line for i, line in enumerate(every) if i not in (400, 401)))
    done = Watch(str(lines), str(tmp_path / "state"), once=True, now=Clock())
    done.run()
    return done


def test_it_shows_lag_and_rates(watch):
    """A line for each partition, the headline shows how it goes."""
    first = watch.history[-1]
    watch.history.clear()
    watch.history.append(first)
    watch.history.append(WatchSample(first.at_s + 2, first.messages + 100, first.rows + 500, first.lag_s))
    panel = watch_panel(watch, interval_s=0)
    title = panel.figure.layout.title.text
    assert "orders.jsonl: " in title and "250 row changes/s" in title and "ended" in title
    assert f"{len(watch.findings)} findings" in title and " behind" in title
    names = [trace.name for trace in panel.figure.data]
    assert names[-2:] == ["row changes read", "messages read"] and len(names) == 2 + len(first.lag_s)
    assert list(panel.figure.data[-2].y) == [250.0]


def test_it_lists_findings_and_the_last_messages(watch):
    """With all digits of a TSO, errors first, the newest message on top."""
    watch.findings[1] = replace(watch.findings[1], severity="error", commit_ts=None)
    panel = watch_panel(watch, interval_s=0)
    panel.value = type(panel.value)(picture="findings")
    cells = panel.figure.data[0].cells["values"]
    assert len(cells[0]) == len(watch.findings) and [*cells[0][:2]] == ["1", f"{len(watch.findings)}"]
    assert any(str(watch.findings[len(watch.findings)].commit_ts) in column[1] for column in cells)
    panel.value = type(panel.value)(picture="last messages")
    header = [h.strip("<b>/") for h in panel.figure.data[0].header["values"]]
    columns = dict(zip(header, panel.figure.data[0].cells["values"], strict=True))
    last = watch.last_events.to_pylist()
    assert list(columns["offset"]) == [f"{e['offset']}" for e in reversed(last)]
    assert str(last[-1]["commit_ts"]) in columns["commit_ts"][0]


def test_it_is_drawn_until_the_watch_ends_and_says_why(tmp_path):
    """In a thread of its own, once more at the end; an error is in the headline."""
    watch = Watch(str(DUP), str(tmp_path / "state"), once=True)
    go, drawn = threading.Event(), threading.Event()

    def wait(timeout_s=None):
        if timeout_s:
            go.wait(30)
            raise RuntimeError("the broker is gone")
        return False

    watch.wait, watch._failed = wait, RuntimeError("the broker is gone")
    panel = watch_panel(watch, interval_s=0.1)
    redraw = panel.redraw
    panel.redraw = lambda: (redraw(), drawn.set())
    go.set()
    assert drawn.wait(30) and "ended by an error: the broker is gone" in panel.figure.layout.title.text
    watch._folder.close()


def test_a_workbench_shows_it_above_its_source(watch):
    """Without a source, too."""
    bench = Workbench(watch=watch)
    assert bench.widget.children[0] is bench.watching.widget and len(bench.widget.children) == 4
    assert Workbench().watching is None
