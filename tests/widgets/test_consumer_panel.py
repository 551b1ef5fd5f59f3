"""The consumer panel, headless: each control has an effect, at once, and without Spark."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from counted_work import lines_run

from ticdc_lab.consumer import cases
from ticdc_lab.consumer.cases import CASES
from ticdc_lab.consumer.log import NarrowLog
from ticdc_lab.widgets import ConsumerView, Panel, consumer_panel
from ticdc_lab.widgets.consumer_panel import STEPS


@pytest.fixture
def panel() -> Panel[ConsumerView]:
    """Two tables in two partitions, a message a ms, watermarks 2, 4 and 6."""
    cluster = CASES["recovery"]().cluster
    images = {f"shop.{t}": cases.images(cluster) for t in ("orders", "users")}
    return consumer_panel(NarrowLog.of(cases.events(cluster)), images)


def test_listeners_of_several_topics_have_speeds_of_their_own() -> None:
    """Also where their partitions have the same number."""
    cluster = CASES["recovery"]().cluster
    log, name = cases.events(cluster), "shop.orders"
    other = log.set_column(log.schema.get_field_index("topic"), "topic", pa.array(["z"] * len(log)))
    panel = consumer_panel(NarrowLog.of(pa.concat_tables([log, other])), {name: cases.images(cluster)})
    speeds = panel.controls["speeds"]
    assert [s.description for s in speeds.sliders][2:] == ["z 0", "z 1"]
    panel.value = replace(panel.value, speeds=(1000, 1000, 10, 10), policy="design-row", step=8)
    slow = finding(panel)
    panel.value = replace(panel.value, speeds=(10, 10, 1000, 1000))
    assert finding(panel) == slow
    panel.value = replace(panel.value, speeds=(10, 10, 10, 10))
    assert finding(panel).split()[1:3] != slow.split()[1:3], "no listener is fast"


def finding(panel: Panel[ConsumerView]) -> str:
    """Give the title."""
    return str(panel.figure.layout.meta["finding"])


def rows(panel: Panel[ConsumerView]) -> list[tuple[str, ...]]:
    """Rows of the table beside the lanes."""
    return list(zip(*panel.figure.data[-1].cells["values"], strict=True))


def test_it_begins_before_anything_is_read(panel: Panel[ConsumerView]) -> None:
    """At step 0 there is no row; at the last step all are applied."""
    assert finding(panel) == "At 0 ms 0 of 8 row changes are applied"
    assert rows(panel) == []
    panel.controls["step"].value = STEPS
    assert "8 of 8 row changes are applied" in finding(panel)
    assert rows(panel) == [("6", "4", "b"), ("4", "1", "b")]


def test_steps_go_back_and_forth(panel: Panel[ConsumerView]) -> None:
    """The buttons, the slider and play are one value; the ends hold."""
    player = panel.controls["step"]
    player.forth.click()
    player.forth.click()
    assert panel.value.step == player.slider.value == player.play.value == 2
    assert finding(panel).startswith("At 2 ms")
    player.back.click()
    assert panel.value.step == 1
    player.play.value = STEPS
    player.forth.click()
    assert panel.value.step == STEPS


def test_policy_and_table(panel: Panel[ConsumerView]) -> None:
    """After 5 ms row mode shows users 4 of transaction 3, but transaction mode waits for partition 1's watermark."""
    panel.value = replace(panel.value, speeds=(1000, 100), table="shop.users", step=6)
    assert finding(panel).startswith("At 6 ms 3 of 8")
    assert [r[1] for r in rows(panel)] == ["4"]
    panel.controls["policy"].value = "design-transaction"
    assert finding(panel).startswith("At 6 ms 0 of 8")
    assert rows(panel) == []


def test_speeds_have_a_slider_each(panel: Panel[ConsumerView]) -> None:
    """Moving one changes that listener alone; setting the value moves the sliders."""
    speeds = panel.controls["speeds"]
    speeds.sliders[1].value = 100
    assert panel.value.speeds == (1000, 100)
    panel.value = replace(panel.value, speeds=(50, 1000))
    assert [s.value for s in speeds.sliders] == [50, 1000]


def test_a_pause_and_a_crash(panel: Panel[ConsumerView]) -> None:
    """A paused listener reads nothing; one whose process crashed is down, and what it held is forgotten."""
    panel.value = replace(panel.value, paused=0, pause_ms=(0.0, 8.0), step=3)
    assert finding(panel) == "At 3 ms 1 of 8 row changes is applied, 1 buffered"
    panel.value = replace(panel.value, paused=-1, crashed=1, crash_ms=(2.5, 5.0), step=4)
    assert "partition 1 is down" in finding(panel)


def test_commit_order(panel: Panel[ConsumerView]) -> None:
    """Transactions are below each other."""
    panel.controls["order"].value = "commit"
    assert "commit_ts" in panel.figure.layout.xaxis.title.text


def test_every_control_answers_at_once(panel: Panel[ConsumerView]) -> None:
    """A run of the model and a picture are so little work that no one waits: 0.07 s are 230,000 lines."""
    for policy in ("strict", "classic", "reference", "reference-fixed"):
        view = replace(panel.value, policy=policy, step=50)
        assert lines_run(lambda: setattr(panel, "value", view)) < 1_000_000  # noqa: B023
