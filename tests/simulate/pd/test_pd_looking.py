"""What one sees of a run: recorded without changing it, choices as tables, costs, what is left and how long."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pd_recordings import REFERENCE_FILE, case, joined, joining, nothing
from worlds import small

from ticdc_lab.pd_core.explained import Compared, Explained, Rejected, Scored
from ticdc_lab.pd_core.filters import SOURCE, TARGET
from ticdc_lab.pd_core.measures import moved_back, shares
from ticdc_lab.pd_core.operators import AddLearner, Kind, Operator, RemovePeer, TransferLeader
from ticdc_lab.simulate.pd.looking.decisions import choice_of, decision_at, wanting
from ticdc_lab.simulate.pd.looking.recording import costs, peers, region_in, why_operator, why_region
from ticdc_lab.simulate.pd.looking.time_left import bounds, time_left, time_left_sentence, work_left
from ticdc_lab.simulate.pd.looking.tryout import real_runs, said, scenario_cases, tried
from ticdc_lab.simulate.pd.world.changes import Pdctl
from ticdc_lab.simulate.pd.world.model import moment
from ticdc_lab.simulate.pd.world.recording import Recording
from ticdc_lab.simulate.pd.world.run import Watch, future, simulate
from ticdc_lab.simulate.pd.world.running import Finished, ends_of, moves_of
from ticdc_lab.simulate.pd.world.start import REFERENCE
from ticdc_lab.simulate.pd.world.world import World


def test_recording_a_run_does_not_change_it() -> None:
    """The same operators in the same order as without."""
    start = joining().start
    world = World(start, 1)
    for k in range(1, 17):
        world.run(k * 500_000)
    assert [f[:12] for f in joined().lives if f.status == "success"] == [
        f[:12] for f in world.controller.ended if f.status == "success"
    ]
    assert len(joined().lives) > 20


def test_placement_is_that_of_the_stores() -> None:
    """Peers and leaders counted from the placement are those that PD counts, at every moment."""
    for s in joined().samples:
        stores, n = np.unique(s.placement.store[s.placement.store > 0], return_counts=True)
        assert dict(zip(stores.tolist(), n.tolist(), strict=True)) == {i: c for i, c in peers(s).items() if c}
        leads = {i: int((s.placement.leader == i).sum()) for i in s.cluster.stores}
        assert leads == {i: x.leader_count for i, x in s.cluster.stores.items()}


def test_words_change_the_future_and_not_the_past() -> None:
    """Up to their moment both runs are the same; what PD answers is kept, also its refusals."""
    one, other = joined(), joined("# to try\npd-ctl store delete 1\n\nstore delete 2\nstore delete 3", 2.0)
    same = [s.at_us for s in one.samples if s.at_us <= 2_000_000]
    assert [peers(one.at(t)) for t in same] == [peers(other.at(t)) for t in same]
    assert peers(other.samples[-1])[1] < peers(one.samples[-1])[1]
    assert [h.change for h in other.happened] == [Pdctl(f"store delete {i}") for i in (1, 2, 3)]
    assert [bool(h.error) for h in other.happened] == [False, False, True]
    assert "ErrStoresNotEnough" in other.happened[-1].error


def test_every_started_operator_has_its_decision() -> None:
    """Why of an operator is the decision of its moment, which names its region."""
    for life in joined().lives:
        decision = why_operator(joined(), life.number)
        assert decision is not None and life.region in {op.region for op in decision.told.operators}
    assert why_operator(joined(), 10**9) is None


def test_a_scheduler_that_comes_later_is_recorded_too() -> None:
    """A recorder listens to the cluster, not to the schedulers that were there when it began."""
    recording = tried(nothing(), changes=said("scheduler add evict-leader-scheduler 2", at_s=1), samples=8)
    evicted = [d for d in recording.decisions if d.by == "evict-leader-scheduler"]
    assert evicted and evicted[0].at_us >= 1_000_000 and evicted[0].told.operators


def test_rounds_without_an_operator_say_each_stores_score() -> None:
    """Where no move can pay, the scores that are nearest are compared, and none of them pays."""
    last = decision_at(joined().decisions, 8_000_000, "balance-region-scheduler", fruitless=True)
    assert last is not None and not last.told.operators
    assert last.told.candidates == (1, 2, 3, 4, 5) and last.told.compared
    assert not any(c.held for c in last.told.compared)


def test_a_region_is_explained_by_everybody() -> None:
    """A region of the first moment: balance would move it; the one who acts is shown."""
    first = joined().samples[0]
    answers = why_region(first, 5)
    chosen = wanting(answers, 0, 5)
    assert {"rule checker", "balance-region", "balance-leader"} <= {a.asked for a in answers}
    assert chosen.by in ("patrol", "balance-region") and chosen.told.operators
    assert why_region(first, 10**9) == () and region_in(first, 10**9) is None


def operator(*steps: object) -> Operator:
    """An operator of these steps."""
    return Operator("test", "mv", 7, Kind.REGION, steps)  # type: ignore[arg-type]


def test_a_choice_says_of_each_candidate_what_became_of_it() -> None:
    """Refused, worse, chosen; a store is a row for each role; the first reason of each filter stands."""
    told_ = Explained(
        (operator(AddLearner(4), RemovePeer(1)),), "mv", (1, 2, 3, 4, 5),
        (Rejected(2, "target", "excluded", "the region has a peer there"), Rejected(1, "target", "state", "down: x"),
         Rejected(2, "target", "excluded", "another")),
        (Scored("isolation", 3, 1, False), Scored("isolation", 4, 100, True)),
        (Compared("region", 1, 4, 90.0, 10.0, True),),
    )  # fmt: skip
    choice = choice_of(told_)
    rows = {(r.role, r.store): r for r in choice.rows}
    assert choice.filters == ("excluded", "state") and choice.rows[0].role == SOURCE
    assert rows[SOURCE, 1].chosen and rows[SOURCE, 1].score == 90.0
    assert rows[TARGET, 4].chosen and rows[TARGET, 4].verdict == "chosen"
    assert rows[TARGET, 3].verdict == "worse isolation" and rows[TARGET, 2].verdict == "has a peer"
    assert rows[TARGET, 2].refused == {"excluded": "the region has a peer there"} and rows[TARGET, 2].times == 2
    assert rows[TARGET, 1].verdict == "down" and rows[TARGET, 5].verdict == "not needed"


def test_ends_of_moves_and_transfers() -> None:
    """From where to where; a leader that is handed on first does not hide the move."""
    assert ends_of(operator(TransferLeader(1, 2), AddLearner(4), RemovePeer(1))) == (1, 4)
    assert ends_of(operator(TransferLeader(1, 2))) == (1, 2)
    assert ends_of(operator(RemovePeer(3))) == (3, 0)


def life(number: int, region: int, a: int, b: int, at_s: float, *, copies: bool = True) -> Finished:
    """A move that ended well."""
    steps = (f"add-learner {b}", f"remove {a}") if copies else (f"transfer-leader {a} to {b}",)
    us = round(at_s * 1e6)
    return Finished(number, "d", "b", "region", "medium", region, a, b, 96.0, us, us, us, "success", "", "", None, None,
                    steps, len(steps))  # fmt: skip


def back_of(lives: list[Finished]) -> int:
    """How many moves took back the one before."""
    return moved_back(moves_of(lives)).back


def test_thrash_is_moves_that_are_undone() -> None:
    """There and back is one; leaders and peers are not mixed up; a second way back needs a second way there."""
    there, back = life(1, 7, 1, 2, 1.0), life(2, 7, 2, 1, 2.0)
    assert back_of([there, back]) == 1 and back_of([back, there]) == 1
    assert back_of([there, life(3, 8, 2, 1, 3.0)]) == 0
    assert back_of([there, life(4, 7, 2, 1, 3.0, copies=False)]) == 0
    assert back_of([there, back, life(5, 7, 2, 1, 3.0)]) == 1


def test_peak_load_is_the_most_between_two_samples() -> None:
    """Store 2 sends and receives 300 MiB in two seconds; what came before the first sample does not count."""
    first = joined().samples[0]
    moments = ((0, {1: 500.0, 2: 0.0}), (1, {1: 540.0, 2: 100.0}), (3, {1: 560.0, 2: 400.0}))
    samples = tuple(
        first._replace(measured=first.measured._replace(at_us=at_s * 1_000_000, io_mib=io)) for at_s, io in moments
    )
    assert costs(Recording(samples, (), (), ())).peak == (150.0, 2)
    assert costs(Recording(samples[:1], (), (), ())).peak == (0.0, 0)


def test_data_moved_and_peak_load_are_one_number_each() -> None:
    """The table of two futures, the panel, and what a scenario defines of the same run."""
    run = simulate(small(60, 4, (1, 2, 3), 600), 60_000_000, watch=Watch(pictured=True))
    one, other = future(run), costs(run.recorder.recording)
    assert one.moved_mib / 1024 == pytest.approx(other.moved_mib / 1024) == pytest.approx(moment(run.world).moved_gib)
    assert one == other and one.moved_mib > 500 < one.peak[0] * 60
    half = future(run, 30_000_000)
    assert half == costs(run.recorder.recording, from_us=30_000_000) and half.moved_mib < one.moved_mib


def test_even_is_within_five_percent_for_good() -> None:
    """From the moment on, and never where the end is not even; shares follow the weights."""
    run = joined()
    since = costs(run).peers_even_s
    assert since is None or since > 0
    assert costs(tried(nothing(), samples=4)).peers_even_s == 0
    assert shares(run.samples[-1].cluster) == pytest.approx(
        dict.fromkeys((1, 2, 3, 4, 5), sum(peers(run.samples[-1]).values()) / 5)
    )
    paid = costs(run)
    assert paid.moved_mib == pytest.approx(run.samples[-1].moved_mib) and paid.moves >= 20


def test_what_holds_an_empty_store_back_is_its_limit() -> None:
    """60 peers a minute into each of four stores: 240 a minute together, as the real PD needed 84 s."""
    run = tried(case("store-limit-offline-60"), until_s=10, samples=10)
    left = time_left(run, REFERENCE, at_us=10_000_000)
    n = left.peers
    assert left.held_by is not None and left.held_by.name == "add-peer limits of stores 1, 2, 3, 4"
    assert left.at_best_s == pytest.approx(n / 4, rel=0.02), "of some the new peer is there and the old one is not gone"
    assert 200 < n < 300
    assert 10 + left.at_best_s == pytest.approx(84, rel=0.1), "that is when the real PD was done"
    assert left.at_pace_s == pytest.approx(left.at_best_s, rel=0.25)
    assert "at best until done: store 5 leaves" in time_left_sentence(left)


def test_a_silent_store_waits_for_its_down_time() -> None:
    """Nothing is replaced before; then the replica limit, or the disks, decide."""
    run = tried(case("down-one-5x500"), until_s=33, samples=33)
    left = time_left(run, REFERENCE, at_us=26_000_000)
    assert left.held_by is not None and left.held_by.name == "max-store-down-time"
    assert "config set max-store-down-time" in left.held_by.turn
    later = time_left(run, REFERENCE, at_us=1_000_000)
    assert not later.work and time_left_sentence(later).startswith("Nothing is left to do")


def test_without_a_store_to_take_peers_it_takes_for_ever() -> None:
    """Two stores for three replicas."""
    run = tried(case("down-no-target-3x300"), until_s=40, samples=20)
    left = time_left(run, REFERENCE, at_us=40_000_000)
    assert math.isinf(left.at_best_s) and time_left_sentence(left).startswith("Never, as things are")


def test_bounds_follow_the_limits_one_by_one() -> None:
    """Each limit that is lowered becomes what holds it back."""
    sample = joined().samples[0]
    work = work_left(sample)
    assert [f.what for f in work] == ["balance of regions"] and work[0].peers > 20

    def first(rate: float, limit: int, io: float) -> str:
        from dataclasses import replace

        config = replace(sample.cluster.config, region_schedule_limit=limit)
        changed = sample._replace(
            cluster=sample.cluster._replace(config=config), rates=dict.fromkeys(sample.cluster.stores, (rate, rate))
        )  # fmt: skip
        return bounds(work_left(changed), changed, replace(REFERENCE, io_mib_a_tick=io))[0].name

    assert first(6, 2048, 200).startswith(("add-peer", "remove-peer"))
    assert first(1e6, 1, 2) == "region-schedule-limit 1"
    assert first(1e6, 2048, 200) == "PD's own caution"
    assert first(1e6, 2048, 0.1).startswith("disks")


def test_a_run_is_recorded_again_as_it_was() -> None:
    """The operators of a run, and the ones of its recording, are the same ones; scenarios are cases too."""
    cases = scenario_cases(REFERENCE_FILE.parent / "scenarios" / "pd")
    retire = cases["retire"]
    again = tried(retire, until_s=20, samples=20)
    run = simulate(retire.start, 20_000_000, changes=retire.changes)
    ours = sorted(f.number for f in again.lives)
    assert ours == run.operators["number"].to_pylist() and len(ours) > 5
    assert [h.at_us for h in again.happened] == [10_000_000]


def test_the_real_runs_are_read_as_they_stand() -> None:
    """Moments in seconds, stores by number."""
    runs = real_runs(REFERENCE_FILE, "add-nodes-6x600")
    assert len(runs) == 3 and runs[0].times_s[:2] == (0.0, 2.0)
    assert sum(runs[0].peers[0].values()) == 1800
    assert said("", at_s=1.0) == ()
