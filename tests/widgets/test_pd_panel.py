"""The PD panel, headless: words change one future, PD's refusals are shown, every picture answers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pd_recordings import joining, nothing

from ticdc_lab.figures.selecting import Selection
from ticdc_lab.simulate.pd.world.pd_policies import BALANCE_LEADER_POLICY
from ticdc_lab.widgets import Panel, PdView, pd_panel


@pytest.fixture(scope="module")
def panel() -> Panel[PdView]:
    """A panel over two small clusters."""
    cases = {"joining": joining(), "nothing": nothing()}
    return pd_panel(cases, policies={"leaders alone": (BALANCE_LEADER_POLICY,)}, until_s=6)


def finding(panel: Panel[PdView]) -> str:
    """Give the title."""
    return str(panel.figure.layout.meta["finding"])


def test_words_part_the_futures(panel: Panel[PdView]) -> None:
    """Without words both are the same; with them PD does something else, and reports it."""
    panel.value = replace(panel.value, case="joining", words="", picture="what PD answered")
    assert finding(panel) == "Nothing was said to PD"
    panel.value = replace(panel.value, words="config set region-schedule-limit 0", at_s=1.0)
    assert finding(panel) == "1 command or event; PD refuses none"
    panel.value = replace(panel.value, picture="two futures")
    one, other = (
        t for t in panel.figure.data if t.name in ("as it is", "config set region-schedule-limit …") and t.yaxis == "y"
    )
    assert one.y[-1] < other.y[-1]


def test_a_refusal_is_in_the_title(panel: Panel[PdView]) -> None:
    """PD's own error, no matter what the picture is."""
    panel.value = replace(panel.value, words="store delete 1\nstore delete 2\nstore delete 3", picture="operators")
    assert finding(panel).startswith("PD refuses: ErrStoresNotEnough")
    panel.value = replace(panel.value, words="store dlete 1")
    assert finding(panel).startswith("PD refuses: store dlete 1: no such command")
    panel.value = replace(panel.value, words="")


def test_a_policy_of_ones_own_is_compared(panel: Panel[PdView]) -> None:
    """Without balance-region no peer moves."""
    panel.value = replace(panel.value, policy="leaders alone", picture="stores, before and now", step=60)
    assert "store 4 has 0 peers" in finding(panel) or "store 5 has 0 peers" in finding(panel)
    panel.value = replace(panel.value, policy="PD's own")


def test_why_is_asked_of_regions_and_operators(panel: Panel[PdView]) -> None:
    """By their numbers, and what does not exist is reported."""
    panel.value = replace(panel.value, picture="why", about="region 5", step=0)
    assert "region 5" in finding(panel) and panel.figure.data
    panel.value = replace(panel.value, about="operator 1")
    assert "balance" in finding(panel)
    panel.value = replace(panel.value, about="store 1", step=60)
    assert any(
        "store 1" in f"store {cell.split()[-1].rstrip('</b>')}" for cell in panel.figure.data[0].cells["values"][0]
    )
    for about in ("region 9999", "operator 9999", "store 9999"):
        panel.value = replace(panel.value, about=about)
        assert "9999" in finding(panel) and not panel.figure.data
    panel.value = replace(panel.value, about="", step=60)
    assert "nothing is done" in finding(panel) or "mv peer" in finding(panel)


def test_a_cell_of_the_map_asks_why_of_its_region(panel: Panel[PdView]) -> None:
    """In a linked panel; a bar of a store asks about the store."""
    panel.value = replace(panel.value, about="", picture="where are the regions", step=0)
    heard: list[Selection] = []
    panel.on_select(heard.append)
    panel.view.clicked = {"curve": 0, "point": 0, "n": 1}
    assert heard[0].store == 1 and heard[0].region is not None
    panel.value = replace(panel.value, picture="stores, before and now")
    panel.view.clicked = {"curve": 0, "point": 2, "n": 2}
    assert heard[1] == Selection(store=3)
    panel.select(heard[0])
    assert not panel.followed, "the map is not about one region"
    panel.value = replace(panel.value, picture="why")
    assert panel.followed == {"about"} and panel.value.about == f"region {heard[0].region}"
    panel.select(heard[1])
    assert panel.value.about == "store 3"
    panel.select(Selection())
    assert panel.value.about == ""


def test_every_picture_answers(panel: Panel[PdView]) -> None:
    """Of a cluster that moves and of one that has nothing to do."""
    for name in panel.controls["case"].options:
        for picture in panel.controls["picture"].options:
            panel.value = replace(panel.value, case=name, picture=picture, step=30)
            assert finding(panel) and panel.problem is None


def test_ones_own_cluster_is_where_it_starts(panel: Panel[PdView], tmp_path: Path) -> None:
    """What pd-ctl printed, in a folder; a folder without it is a sentence."""
    stores = [
        {"store": {"id": i, "state_name": "Up"}, "status": {"capacity": "1TiB", "available": "1TiB", "used_size": "0B"}}
        for i in (1, 2, 3, 4)
    ]
    peers = [{"id": s, "store_id": s, "role_name": "Voter"} for s in (1, 2, 3)]
    regions = [
        {"id": n, "start_key": f"{n:04X}" if n > 1 else "", "end_key": f"{n + 1:04X}", "peers": peers,
         "leader": peers[0], "approximate_size": 96, "approximate_keys": 1000}
        for n in range(1, 41)
    ]  # fmt: skip
    (tmp_path / "stores.json").write_text(json.dumps({"count": 4, "stores": stores}))
    (tmp_path / "regions.json").write_text(json.dumps({"count": 40, "regions": regions}))
    panel.value = replace(panel.value, own=str(tmp_path), picture="stores, before and now", step=0)
    assert "store 4 has 0 peers where its share is 30" in finding(panel)
    panel.value = replace(panel.value, own=str(tmp_path / "nowhere"))
    assert panel.problem is not None and panel.problem.control == "own" and "nowhere" in panel.problem.message
    panel.value = replace(panel.value, own="")


def test_two_moments_of_ones_own_cluster_are_compared(panel: Panel[PdView]) -> None:
    """As `pd explain --before --after` does; its own schedulers run, and a change is played as `simulate pd --from`."""
    printed = Path(__file__).parents[2] / "data" / "pd_ctl"
    value = replace(panel.value, own=str(printed / "tuesday"), before="", picture="what moved since before", words="")
    panel.value = value
    assert finding(panel) == "Two folders are compared"
    panel.value = replace(value, before=str(printed / "monday"))
    assert finding(panel).startswith("In 30 s 7 peers came to another store")
    assert panel.figure.data[0].cells["values"][3] == ["0", "0", "7", "0", "0", "0"]
    panel.value = replace(value, before=str(printed / "sunday"))
    assert panel.problem is not None and panel.problem.control == "before"
    panel.value = replace(panel.value, own="", before="")
