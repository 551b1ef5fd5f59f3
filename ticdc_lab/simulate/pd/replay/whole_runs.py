"""Judging whole-cluster runs: ours from a case's own start, beside the real PD's.

PD draws by chance, so that each of its runs is another; what is compared is what its repetitions agree in:

- of several seeds the middle one of ours counts, number by number;
- repairs (all that is no balancing) as many as the real ones where those agree, else within their spread, widened by
  its own width and by 3; a leader's role is put right as often as balancing happened to disturb it;
- balancing operators within the spread of the repetitions, widened by its own width and by 10 %;
- the final distribution not worse: standard deviations of peers and leaders not above the highest of the repetitions by
  more than 10 % and 1.5 % of the mean;
- what was refused is refused with the same error, and no invariant of the monitor is violated on the way;
- where the real run came to rest, regions have the same numbers of voters, learners and down peers, and there are as
  many regions of each kind; where repetitions merge to different numbers, within their spread, widened by its width.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ticdc_lab.pd_core.recorded.records import Fields, Malformed, Verdict
from ticdc_lab.simulate.pd.world.pd_policies import DEFAULT_POLICIES
from ticdc_lab.simulate.pd.world.policy import Policy
from ticdc_lab.simulate.pd.world.reference import ERROR, CaseRun, case_of, run_case, spread_of

_BALANCE = (
    "balance-", "evict-", "grant-", "move-hot", "transfer-hot", "merge-region", "leave-joint", "remove-orphan",
    "move-to-better", "fix-leader-role",
)  # fmt: skip
_RANGE, _OF_MEAN, _FEW = 0.10, 0.015, 3


class Cases:
    """The cases and runs of a file; each case is run once a seed, when its first verdict is asked for."""

    def __init__(
        self, records: Sequence[Fields], seeds: Sequence[int] = (1,), policies: Sequence[Policy] = DEFAULT_POLICIES
    ) -> None:
        self.cases = {r.text("case"): r for r in records if r.any("kind", "") == "case"}
        self.runs: dict[str, list[Fields]] = defaultdict(list)
        for r in records:
            if r.any("kind", "") == "run":
                self.runs[r.text("case")].append(r)
        self.seeds, self.policies = seeds, policies
        self.ours: dict[str, list[CaseRun]] = {}

    def run(self, name: str) -> list[CaseRun]:
        """Give our runs of a case, one a seed."""
        if name not in self.cases:
            raise Malformed("record.case", "a case of this file", name)
        if name not in self.ours:
            case = case_of(self.cases[name])
            self.ours[name] = [run_case(case, seed, self.policies) for seed in self.seeds]
        return self.ours[name]

    def judge_case(self, record: Fields) -> Verdict:
        """Judge our run of a case by all repetitions."""
        name = record.text("case")
        real = [_real(r) for r in self.runs[name]]
        return _verdict(self.run(name), real) if real else Verdict(None, None, None, "the file has no run of this case")

    def judge_run(self, record: Fields) -> Verdict:
        """Put our run of the case beside one repetition; it is judged with all of them."""
        name = record.text("case")
        verdict = _verdict(self.run(name), [_real(r) for r in self.runs[name]])
        return verdict._replace(file=run_json(_real(record)))


def _real(r: Fields) -> CaseRun:
    """Read what a repetition came to from a record ``run``."""
    final = r.object("final")
    operators = r.object("operators").value
    errors = [str(e.any("error", None) or "") for e in r.objects("events_applied", [])]
    return CaseRun(
        r.text("result"), r.integer("ticks_to_last_change"), r.any("ticks_until_leaders_within_5pct", None),
        r.any("ticks_until_peers_within_5pct", None),
        {d: int(n["create"]) for d, n in operators.items() if n.get("create")}, dict(final.object("peers").value),
        dict(final.object("leaders").value), dict(final.object("region_shapes").value),
        tuple(e for text in errors for e in ERROR.findall(text)), final.texts("live_stores"),
    )  # fmt: skip


def run_json(r: CaseRun) -> dict[str, Any]:
    """Give the numbers that are put side by side."""
    return {
        "result": r.result,
        "created": {d: n for d, n in sorted(r.created.items()) if n},
        "peers": dict(sorted(r.peers.items())),
        "leaders": dict(sorted(r.leaders.items())),
        "shapes": r.shapes,
        "last_change": r.last_change,
        "leaders_within_5pct": r.leaders_within_5pct,
        "peers_within_5pct": r.peers_within_5pct,
        "errors": list(r.errors),
    }


def _verdict(ours: Sequence[CaseRun], real: Sequence[CaseRun]) -> Verdict:
    wrong = [r.violated for r in ours if r.violated]
    created = _middle([r.created for r in ours])
    wrong += _counts(created, [r.created for r in real], _room)
    live = real[0].live
    for what, mine, theirs in (
        ("peers", [r.peers for r in ours], [r.peers for r in real]),
        ("leaders", [r.leaders for r in ours], [r.leaders for r in real]),
    ):
        spreads = sorted((spread_of(m, live) for m in mine), key=lambda s: s["stddev"])
        wrong += _distribution(what, spreads[len(spreads) // 2], [spread_of(t, live) for t in theirs])
    errors = next((e for r in ours if (e := r.errors) != real[0].errors), real[0].errors)
    if errors != real[0].errors:
        wrong.append(f"refused: ours {list(errors)}, PD {list(real[0].errors)}")
    if all(r.result == "SETTLED" for r in real):
        shapes = _middle([r.shapes for r in ours])
        wrong += _counts(shapes, [r.shapes for r in real], lambda _, low, high: high - low, "regions of ")
    because = "; ".join(wrong) or "as the real runs, within their spread"
    told = run_json(ours[0])
    if len(ours) > 1:
        counts = {d: [r.created.get(d, 0) for r in ours] for d in created}
        spread = {d: [min(n), created[d], max(n)] for d, n in counts.items()}
        recorded = {d: [r.created.get(d, 0) for r in real] for d in {d for r in real for d in r.created} | set(spread)}
        outside = sorted(
            d for d, n in recorded.items()
            if min(n) < spread.get(d, [0, 0, 0])[0] or max(n) > spread.get(d, [0, 0, 0])[2]
        )  # fmt: skip
        told |= {"seeds": len(ours), "spread": spread, "outside": outside}
    return Verdict(told, [run_json(r) for r in real], not wrong, because)


def _middle(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Give the middle one of each number."""
    names = sorted({name for one in counts for name in one})
    return {name: sorted(one.get(name, 0) for one in counts)[len(counts) // 2] for name in names}


def _counts(
    ours: Mapping[str, int], real: Sequence[Mapping[str, int]], room: Callable[[str, int, int], float], of: str = ""
) -> list[str]:
    """Name the numbers that lie outside of the repetitions' spread, widened by the room that each has."""
    wrong = []
    for name in sorted({n for one in (ours, *real) for n in one}):
        counts = [r.get(name, 0) for r in real]
        low, high, mine = min(counts), max(counts), ours.get(name, 0)
        if not low - room(name, low, high) <= mine <= high + room(name, low, high):
            wrong.append(f"{of}{name}: ours {mine}, PD {low}..{high}")
    return wrong


def _room(desc: str, low: int, high: int) -> float:
    if desc.startswith(_BALANCE):
        return max(high - low, _RANGE * high, _FEW)
    return max(high - low, _FEW) if high > low else 0


def _distribution(what: str, ours: Mapping[str, Any], real: Sequence[Mapping[str, Any]]) -> list[str]:
    worst = max(r["stddev"] for r in real)
    if ours["stddev"] <= worst * (1 + _RANGE) + _OF_MEAN * ours["mean"]:
        return []
    return [f"{what} more spread: stddev ours {ours['stddev']:.1f}, PD up to {worst:.1f}"]
