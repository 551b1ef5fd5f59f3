"""Pictures of PD: each shows what the run shows, its title is the finding, large clusters stay small."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from drawn_text import after
from pd_recordings import REFERENCE_FILE, case, joined, joining, nothing

from ticdc_lab import figures
from ticdc_lab.figures.figure import Bar, Figure
from ticdc_lab.figures.key_heat import grid
from ticdc_lab.figures.region_map import cells, fit
from ticdc_lab.pd_core.explained import Explained
from ticdc_lab.pd_core.measures import LEADERS, counts
from ticdc_lab.simulate.pd.looking.recording import peers
from ticdc_lab.simulate.pd.looking.time_left import time_left
from ticdc_lab.simulate.pd.looking.tryout import changes_at, real_runs, tried
from ticdc_lab.simulate.pd.world.changes import ReadFlow
from ticdc_lab.simulate.pd.world.recording import ClusterSample, Recording
from ticdc_lab.simulate.pd.world.start import REFERENCE, Start, StoreStart, spread_regions


def empty() -> Recording:
    """A run with one sample and nothing else."""
    return Recording((joined().samples[0],), (), (), ())


def title(fig: Figure) -> str:
    """The finding."""
    return str(fig.layout.meta["finding"])


def words(fig: Figure) -> str:
    """What its annotations show."""
    return " ".join(a.text for a in fig.layout.annotations)


def named(fig: Figure, name: str) -> Bar:
    """The trace of a name."""
    (trace,) = (t for t in fig.data if t.name == name)
    return trace


def silent() -> ClusterSample:
    """A store is down, none is replaced yet."""
    return tried(case("down-one-5x500"), until_s=12, samples=6).samples[-1]


def test_the_map_has_a_cell_for_each_peer() -> None:
    """As many filled cells as leaders, as many others as followers; cells are in the column of their store."""
    sample = joined().samples[0]
    fig = figures.region_map(sample)
    assert len(named(fig, "leader").x) == sum(counts(sample.cluster, LEADERS).values()) == 60
    assert len(named(fig, "follower").x) == sum(peers(sample).values()) - 60
    columns = {int(x) for x in named(fig, "follower").x}
    assert columns == {0, 2, 4}, "stores 1 and 4 are in zone 1, 2 and 5 in zone 2, 3 in zone 3"
    assert "region 1" in named(fig, "leader").customdata
    assert title(fig).startswith("At 0 s store 1 has 60 peers, its share is 36; store 4 has 0 of 36")


def test_down_and_pending_peers_are_hatched() -> None:
    """Cells of the silent store are of another kind, and the title counts them."""
    fig = figures.region_map(silent())
    down = named(fig, "down")
    assert len(down.x) == 300 and down.marker.pattern.shape == "x"
    assert "300 peers down" in title(fig)
    every_tick = tried(joining(), until_s=2, samples=20).samples
    pending = next(s for s in every_tick if s.placement.pending.any())
    hatched = named(figures.region_map(pending), "pending")
    assert len(hatched.x) == int(pending.placement.pending.sum()) and hatched.marker.pattern.shape == "/"


def test_brackets_name_the_zones() -> None:
    """A bracket for each zone over its stores; hosts that hold one store each report nothing new."""
    texts = [a.text for a in figures.region_map(joined().samples[0]).layout.annotations]
    assert {"zone z1", "zone z2", "zone z3"} <= {t.replace("z1", "z1") if "zone" in t else f"zone {t}" for t in texts}
    assert not any("host" in t for t in texts)


def test_a_large_cluster_is_few_cells() -> None:
    """50,000 regions on 100 stores: groups of peers, not 150,000 shapes, and every peer is in one."""
    stores = tuple(StoreStart(i) for i in range(1, 101))
    start = Start(stores=stores, regions=spread_regions(50_000, range(1, 101)), settings=REFERENCE)
    big = type(joining())("big", start, (), 0, 1_000_000, 1_000_000)
    sample = tried(big, until_s=0.1, samples=1).samples[0]
    size = fit([sample])
    drawn = cells(sample, sorted(sample.cluster.stores), size)
    n = sum(len(part["x"]) for part in drawn.values())
    assert n < 3_000 and n * size.each >= 150_000
    fig = figures.region_map(sample)
    assert "group of up to" in fig.layout.meta["note"] and len(fig.to_json()) < 600_000


def test_the_map_is_stepped() -> None:
    """A frame a moment, with the same axes; the slider begins where it is ordered to."""
    fig = figures.region_map_stepped(joined(), moments=5, start_s=4)
    (slider,) = fig.layout.sliders
    assert len(fig.frames) == 5 and slider.steps[slider.active].label == "4 s"
    tops = {tuple(after(fig, f).layout.yaxis.range) for f in fig.frames}
    assert len(tops) == 1 and fig.frames[slider.active].layout.title.text == fig.layout.title.text


def test_the_topology_is_a_tree_of_labels() -> None:
    """Zones, hosts, stores; every parent is there; leaves are as wide as their peers."""
    sample = joined().samples[-1]
    (tree,) = figures.label_topology(sample).data
    assert set(tree.parents) - {""} <= set(tree.ids)
    width = dict(zip(tree.ids, tree["values"], strict=True))
    assert {i: width[f"store {i}"] for i in peers(sample)} == peers(sample)
    assert "3 zones of 1 to 2 stores" in title(figures.label_topology(sample))
    at_hand = min(width[f"store {i}"] for i in peers(sample)) / sum(peers(sample).values())
    least_px = figures.label_topology(sample).layout.meta["least_px"]
    assert at_hand * (least_px - 180) > 75 or least_px == 1400, "the smallest store's box takes its name"
    assert "without location labels" in title(figures.label_topology(tried(nothing(), samples=2).samples[0]))


def test_bars_have_shares_and_what_was_before() -> None:
    """Now, before, share: peers, leaders, data; the title names the one farthest off."""
    a, b = joined().samples[0], joined().samples[3]
    fig = figures.store_bars(b, a)
    assert list(named(fig, "peers").y) == list(peers(b).values())
    before = [t for t in fig.data if t.name == "before"]
    assert len(before) == 3 and list(before[0].y) == list(peers(a).values())
    shares = [t for t in fig.data if t.name == "share by weight"]
    share = sum(peers(b).values()) / 5
    assert set(shares[0].y) - {None} == {share}
    assert "store" in title(fig) and f"its share is {share:,.0f}" in title(fig)


def test_flow_falls_where_it_is_read() -> None:
    """All of what is read is in the rows of the regions that are read, from that moment on."""
    flows = changes_at(2.0, ReadFlow((30, 31), 1.0))
    run = tried(joining(), changes=flows, until_s=3, samples=6)
    g = grid(run, "read")
    assert g.mib_s[:, 0].sum() == 0 and g.mib_s[:, -1].sum() == pytest.approx(2.0)
    assert np.flatnonzero(g.mib_s[:, -1]).tolist() == [29, 30]
    assert title(figures.key_heat(run, of="read")).startswith("2 of 60 regions take 80 % of what is read")
    assert title(figures.key_heat(run, of="write")) == "Nothing is written"


def test_the_timeline_counts_every_operator() -> None:
    """Rates over their bins add up to the operators that finished; few lives are drawn one by one."""
    fig = figures.operator_timeline(joined())
    done = sum(f.status == "success" for f in joined().lives)
    bars = [t for t in fig.data if t.type == "bar" and t.orientation is None and t.name != "cancelled"]
    assert sum(round(sum(t.y) * t.width) for t in bars) == done
    assert title(fig).startswith(f"{done} operators finished from 0 to 8 s")
    assert sum(len(t.y) for t in fig.data if t.orientation == "h") == 2 * len(joined().lives)
    quiet = figures.operator_timeline(joined(), between_s=(0.0, 0.5))
    assert title(quiet) == "PD asked for nothing"
    many = joined()
    many = figures.operator_timeline(replace(many, lives=many.lives * 100))
    assert ["Middle: " in words(f) for f in (fig, many)] == [True, False], "two plots have no middle"


def test_the_why_table_marks_the_chosen_and_the_refused() -> None:
    """Bold where it goes, a cross with the reason where not; nothing done has a table too, or a sentence."""
    decision = next(d for d in joined().decisions if d.told.operators and d.by.startswith("balance-region"))
    (table,) = figures.why_table(decision).data
    bold = [text for text in table.cells["values"][0] if text.startswith("<b>")]
    assert any("source" in t for t in bold) and any("target" in t for t in bold)
    assert any("✖" in text for column in table.cells["values"][1:-2] for text in column)
    idle = next(d for d in joined().decisions if not d.told.operators and d.told.compared)
    fig = figures.why_table(idle)
    assert "nothing is done" in title(fig) and not any(t.startswith("<b>") for t in fig.data[0].cells["values"][0])
    assert not figures.why_table(Explained((), "the region fits its rules")).data


def test_why_nothing_happens_is_told_by_second() -> None:
    """A bar a second for each decider; green where operators were made, and then no other reason."""
    fig = figures.why_nothing(joined())
    made = named(fig, "operators were made")
    moved = {f.created_us // 1_000_000 for f in joined().lives if f.desc == "balance-region-scheduler"}
    row = list(fig.layout.yaxis.ticktext).index("balance-region")
    green = {s for s, y in zip(made.base, made.y, strict=True) if y == row}
    assert moved <= green
    others = {(s, y) for t in fig.data if t is not made for s, y in zip(t.base, t.y, strict=True)}
    assert others and not others & set(zip(made.base, made.y, strict=True))
    assert title(fig).startswith("balance-region made operators in")
    assert title(figures.why_nothing(empty())) == "Nothing was decided"


def test_two_futures_part_at_their_moment() -> None:
    """Same start, both lines, the real PD's thin ones, four numbers; the title shows who is even and what it costs."""
    slow = joined("config set region-schedule-limit 0", 2.0)
    fig = figures.two_futures(
        {"as it is": joined(), "limit 0": slow}, from_s=2.0, real=real_runs(REFERENCE_FILE, "add-nodes-6x600")
    )
    one, other = (next(t for t in fig.data if t.name == n and t.type == "scatter") for n in ("as it is", "limit 0"))
    assert one.y[0] == other.y[0] and one.y[-1] < other.y[-1]
    assert sum(t.type == "bar" for t in fig.data) == 4 and sum(t.name == "the real PD" for t in fig.data) == 3
    assert "limit 0" in title(fig) and "GiB moved" in title(fig)
    assert title(figures.two_futures({"one": joined()})) == "There are not two futures"


def test_what_holds_it_back_is_red_and_first() -> None:
    """The slowest limit on top, in another colour; where nothing is left it is a sentence."""
    left = time_left(joined(), REFERENCE, at_us=1_000_000)
    fig = figures.time_left(left)
    bars = [t for t in fig.data if t.type == "bar"]
    assert [b.x[0] for b in bars] == sorted((b.x[0] for b in bars), reverse=True)
    assert bars[0].marker.color == "#D55E00" != bars[1].marker.color
    done = tried(nothing(), samples=3)
    assert "Nothing is left to do" in title(figures.time_left(time_left(done, REFERENCE, at_us=3_000_000)))


def test_answers_and_refusals_are_listed() -> None:
    """What PD answered to each command; nothing reported is a sentence."""
    run = joined("store delete 1\nstore delete 2\nstore delete 3\nregion check miss-peer", 2.0)
    fig = figures.pd_answers(run.happened)
    assert title(fig) == "4 commands and events; PD refuses 1"
    assert "ErrStoresNotEnough" in fig.data[0].cells["values"][2][2]
    assert title(figures.pd_answers(())) == "Nothing was said to PD"


@pytest.mark.parametrize("draw", [figures.operator_timeline, figures.key_heat])
def test_nothing_is_a_sentence(draw: object) -> None:
    """No empty axis."""
    fig = draw(empty())  # type: ignore[operator]
    assert not fig.data and fig.layout.annotations


def test_every_picture_has_both_themes() -> None:
    """The dark one changes paper and ink, and no figure sets its own."""
    for fig in (figures.region_map(joined().samples[0]), figures.store_bars(joined().samples[0])):
        assert figures.themed(fig, "dark").layout.template.layout.paper_bgcolor == "#16181c"
        assert fig.layout.paper_bgcolor is None
