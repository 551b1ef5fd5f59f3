"""Our runs of the reference cases beside the ones of the real PD."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from worlds import REFERENCE, reference_records

from ticdc_lab.pd_core import builder, evict_leader
from ticdc_lab.pd_core.explained import Explained
from ticdc_lab.pd_core.operators import EnterJoint, Kind
from ticdc_lab.pd_core.recorded.records import Fields, Malformed
from ticdc_lab.pd_core.stores import Store
from ticdc_lab.simulate.pd.replay import Cases, replay
from ticdc_lab.simulate.pd.world import pd_policies, policy, reference
from ticdc_lab.simulate.pd.world.patrol import Patrol
from ticdc_lab.simulate.pd.world.policy import Answer, Policy, SeenCluster
from ticdc_lab.simulate.pd.world.reference import case_of, on_reference, recorded_rule, run_case
from ticdc_lab.simulate.pd.world.world import World

REPEATED = Path(__file__).parents[2] / "data" / "pd" / "repeated_runs.jsonl.gz"
QUICK = (
    "stable-6x600", "offline-refused-3x300", "evict-leader", "down-no-target-3x300", "capacity-mixed-v1",
    "diagnose-label-not-match1", "disconnect-resume-4x400", "max-replicas-3-to-5", "down-one-5x500",
    "balance-leader-6x600", "zone-down-isolation-zone", "offline-cancel-5x500", "store-limit-offline-60",
    "low-space-v1", "low-space-v2", "region-merge-4x400",
)  # fmt: skip

DISAGREE = {
    "import-data-upstream": (
        "transfers of leaders 0 to 25 in twenty seeds, the middle 2, the one record 13; five more runs of the real PD"
        " have 0 to 12, and with them the case agrees"
    ),
    "diagnose-rule2": (
        "transfers of leaders: middle 99 of three seeds, 100 of twenty; the records have 112 and 117; five more runs of"
        " the real PD have 77 to 113, and with them the case agrees"
    ),
}
"""Cases that do not agree with the records of the file alone, and why."""


@pytest.fixture(scope="module")
def cases() -> Cases:
    """The cases of the reference file, each run once."""
    return Cases(reference_records())


@pytest.mark.parametrize("name", QUICK)
def test_a_case_ends_as_the_real_runs_ended(name: str, cases: Cases) -> None:
    """Repairs exact in number, balance within the spread, the distribution no worse, refusals the same."""
    verdict = cases.judge_case(cases.cases[name])
    assert verdict.agrees, verdict.because


def test_keys_of_a_recorded_rule_are_compared_as_bytes() -> None:
    """In either case; one that is not hexadecimal is refused, with its place."""
    told = {"role": "voter", "count": 3, "start_key": "74ab", "end_key": "74AC"}
    rule = recorded_rule(Fields(told, "rules.0"))
    assert (rule.start_key, rule.end_key) == ("74AB", "74AC")
    with pytest.raises(Malformed, match=r"rules.0: .*keys in hexadecimal .*t_101"):
        recorded_rule(Fields(told | {"end_key": "t_101"}, "rules.0"))


def test_of_several_seeds_the_middle_one_counts() -> None:
    """Two seeds that do too much do not outweigh three that do not; least, middle and most are there to read."""
    found = Cases(reference_records(), range(1, 6))
    name = "evict-leader"
    [run, *_] = found.run(name)
    made = {
        d: run._replace(created=run.created | {"balance-leader-scheduler": n})
        for d, n in enumerate((9, 65, 66, 67, 999))
    }
    found.ours[name] = list(made.values())
    verdict = found.judge_case(found.cases[name])
    assert verdict.agrees and verdict.ours["spread"]["balance-leader-scheduler"] == [9, 66, 999]
    assert verdict.ours["outside"] == [], "the recorded runs lie within ours"
    few = [run._replace(created=run.created | {"balance-leader-scheduler": 1}) for _ in made]
    found.ours[name] = few
    assert found.judge_case(found.cases[name]).ours["outside"] == ["balance-leader-scheduler"]
    found.ours[name] = [made[0], made[0], made[0], made[2], made[3]]
    verdict = found.judge_case(found.cases[name])
    assert not verdict.agrees and "balance-leader-scheduler: ours 9" in verdict.because


def test_repairs_are_as_many_as_peers_were_lost(cases: Cases) -> None:
    """300 peers on the store that died: 300 operators; 3 to 5 replicas of 300 regions: 600; 66 of 100 leaders first."""
    assert cases.run("down-one-5x500")[0].created["replace-rule-down-peer"] == 300
    assert cases.run("max-replicas-3-to-5")[0].created["add-rule-peer"] == 600
    offline = cases.run("store-limit-offline-60")[0].created
    assert (offline["replace-rule-offline-peer"], offline["replace-rule-offline-leader-peer"]) == (234, 66)


@pytest.mark.parametrize(
    ("name", "module", "attribute", "fault"),
    [
        ("balance-leader-6x600", policy, "_SLOWER", 1000.0),
        ("evict-leader", evict_leader, "EVICT_BATCH", 0),
        ("offline-cancel-5x500", World, "_count_leader", lambda *_: None),
        ("low-space-v1", Store, "available", property(lambda store: store.averaged or 0.0)),
        ("low-space-v2", builder, "leader_score", lambda *_: 0.0),
        ("region-merge-4x400", Patrol, "mark_beside", lambda *_: None),
        ("diagnose-rule2", reference, "with_rules", lambda rules, saved: tuple(saved)),
    ],
)
def test_a_planted_fault_is_noticed(
    name: str, module: object, attribute: str, fault: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A judge that cannot refuse proves nothing."""
    monkeypatch.setattr(module, attribute, fault)
    found = Cases(reference_records())
    assert not found.judge_case(found.cases[name]).agrees


def test_a_policy_of_ones_own_is_compared_with_pds() -> None:
    """A policy that never moves a leader leaves all of them where they are; PD's evens them out."""

    def nothing(seen: SeenCluster) -> Answer:
        return Answer((), Explained((), "it never does"))

    lazy = Policy("balance-nothing", nothing, Kind.LEADER)
    others = (p for p in pd_policies.DEFAULT_POLICIES if p.limited_as != lazy.limited_as or p.hot)
    sets = {"PD": pd_policies.DEFAULT_POLICIES, "lazy": (*others, lazy)}
    rows = {r["policy"]: r for r in on_reference(REFERENCE, sets, cases=["disconnect-resume-4x400"]).to_pylist()}
    assert rows["lazy"]["leaders_stddev"] > 5 * rows["PD"]["leaders_stddev"]
    assert rows["lazy"]["operators"] == 0 < rows["PD"]["operators"]


def test_imported_regions_merge_and_are_cut_as_at_the_real_pd(cases: Cases) -> None:
    """Merges hang where the leader would be demoted, 4 at the end of the record; PD knows few of the leaders."""
    [run] = cases.run("import-data-upstream")
    assert 800 <= run.created["merge-region"] <= 1550 and run.created.get("balance-leader-scheduler", 0) <= 25
    assert run.world is not None and 50 <= len(run.world.regions.holes) <= 140, "99 were lost in the record"
    assert run.world is not None and sum(run.leaders.values()) - sum(run.world.regions.members.leaders) > 100
    assert 1 <= sum(isinstance(r.step, EnterJoint) for r in run.world.controller.running.values()) <= 8


def test_a_region_that_grows_at_one_key_is_cut_as_at_the_real_pd(cases: Cases) -> None:
    """The first cut is by keys, into halves of half a MiB: the right one stays small, and is merged only once."""
    case = case_of(cases.cases["region-split-upstream"])
    world = World(case.start, 1, changes=case.changes)
    world.run(case.before_us)
    r = world.regions
    assert r.count == 13 and r.size[r.row_of[1]] == 0.5 and r.range_of(r.row_of[1])[1] == ""
    assert sorted(set(r.size[r.rows()].tolist()))[0] == 0.5 and r.size[: r.n].max() < 128
    [run] = cases.run("region-split-upstream")
    assert run.world is not None and not run.violated
    assert (~run.world.regions.alive[: run.world.regions.n]).sum() == 1


@pytest.mark.soak
def test_all_cases_agree_but_those_that_are_listed() -> None:
    """``ticdc-lab pd replay --seeds 1..3`` on the whole file: about two minutes."""
    found = {r["id"]: r for r in replay(REFERENCE, seeds=range(1, 4)).records if r["kind"] == "case"}
    assert {name for name, r in found.items() if not r["agrees"]} <= set(DISAGREE)
    assert len(found) == 31


def test_with_more_runs_of_the_real_pd_the_other_two_cases_agree() -> None:
    """Five more runs of each, by PD's own simulator: what one or two recorded runs have is not all that PD does."""
    found = replay(REPEATED, seeds=range(1, 4)).records
    assert [(r["id"], r["agrees"]) for r in found if r["kind"] == "case"] == [(name, True) for name in sorted(DISAGREE)]
    assert len(found) == 15


def test_other_rules_leave_every_replica_where_they_are_asked_for(cases: Cases) -> None:
    """A leader rule on top of the default: a fourth voter everywhere, leaders where it shows, and nothing removed."""
    [run] = cases.run("diagnose-rule2")
    assert run.shapes == {"4v": 300} and "remove-orphan-peer" not in run.created
    assert set(run.leaders) == {"1", "2", "3"} and run.created["add-rule-peer"] == 300
    assert run.created["replace-rule-swap-fit-leader-peer"] == 33 and run.created["replace-rule-swap-fit-peer"] == 17


def test_a_token_a_second_is_taken_nearly_every_second(cases: Cases) -> None:
    """A store that joins with limit 60 gains 166 to 170 peers in 178 s at the real PD: rounds take PD's time."""
    record = {**cases.cases["store-limit-15"].value, "case": "store-limit-60"}
    record["config"] = {**record["config"], "store-limit": [60, 60]}
    gained = run_case(case_of(Fields(record, "record"))).peers["5"]
    assert 160 <= gained <= 178
