"""A file of records, judged line by line: answers of PD's code (oracle.jsonl), single decisions of its tests
(scenarios.jsonl), runs of whole clusters (reference.jsonl.gz). One table has who judges what.

In a run PD draws by chance, so that each of its runs is another; what is compared is what its repetitions agree in:

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from ticdc_lab.pd_core.recorded import oracle
from ticdc_lab.pd_core.recorded import scenario_decisions as decisions
from ticdc_lab.pd_core.recorded import scenario_facts as facts
from ticdc_lab.pd_core.recorded.given import Given, given_of, not_understood, with_running
from ticdc_lab.pd_core.recorded.records import Fields, Malformed, UnknownRecord, Verdict, lines_of
from ticdc_lab.simulate.pd.world.changes import ERROR
from ticdc_lab.simulate.pd.world.reference import CaseRun, case_of, run_case, spread_of

_BALANCE = (
    "balance-", "evict-", "grant-", "move-hot", "transfer-hot", "merge-region", "leave-joint", "remove-orphan",
    "move-to-better", "fix-leader-role",
)  # fmt: skip
_RANGE, _OF_MEAN, _FEW = 0.10, 0.015, 3


class Cases:
    """The cases and runs of a file; each case is run once a seed, when its first verdict is asked for."""

    def __init__(self, records: Sequence[Fields], seeds: Sequence[int] = (1,)) -> None:
        self.cases = {r.text("case"): r for r in records if r.any("kind", "") == "case"}
        self.runs: dict[str, list[Fields]] = defaultdict(list)
        for r in records:
            if r.any("kind", "") == "run":
                self.runs[r.text("case")].append(r)
        self.seeds = seeds
        self.ours: dict[str, list[CaseRun]] = {}

    def run(self, name: str) -> list[CaseRun]:
        """Give our runs of a case, one a seed."""
        if name not in self.cases:
            raise Malformed("record.case", "a case of this file", name)
        if name not in self.ours:
            case = case_of(self.cases[name])
            self.ours[name] = [run_case(case, seed) for seed in self.seeds]
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
        "result": r.result, "created": {d: n for d, n in sorted(r.created.items()) if n},
        "peers": dict(sorted(r.peers.items())), "leaders": dict(sorted(r.leaders.items())), "shapes": r.shapes,
        "last_change": r.last_change, "leaders_within_5pct": r.leaders_within_5pct,
        "peers_within_5pct": r.peers_within_5pct, "errors": list(r.errors),
    }  # fmt: skip


def _verdict(ours: Sequence[CaseRun], real: Sequence[CaseRun]) -> Verdict:
    wrong = [r.violated for r in ours if r.violated]
    created = _middle([r.created for r in ours])
    wrong += _outside(created, [r.created for r in real], _room)
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
        wrong += _outside(shapes, [r.shapes for r in real], lambda _, low, high: high - low, "regions of ")
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


def _outside(
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


class RecordJudge(NamedTuple):
    """A row of the table: which records it judges, how what is given is read, and the function that judges it.

    ``kind`` is the kind of a record, or ``scenario``: then the first row fits whose area and expectation the scenario
    has; "" fits any. ``judge`` is given what was read, and the record, of a scenario what it expects.
    """

    kind: str
    area: str
    expects: str
    read: Callable[[Fields, Cases], Any]
    judge: Callable[[Any, Fields], Verdict]


def _itself(record: Fields, cases: Cases) -> Fields:
    return record


def _object(record: Fields, cases: Cases) -> Fields:
    return record.object("given")


def _given(record: Fields, cases: Cases) -> Given:
    return given_of(record)


def _cases(record: Fields, cases: Cases) -> Cases:
    return cases


SCENARIO = "scenario"
JUDGES = tuple(RecordJudge(*row) for row in (
    ("store_score", "", "", _itself, oracle.store_score),
    ("distinct_score", "", "", _itself, oracle.isolation_score),
    ("rule_checker", "", "", _object, oracle.rule_checker),
    ("replica_checker", "", "", _object, oracle.replica_checker),
    ("balance_region", "", "", _object, oracle.balance_region),
    ("balance_leader", "", "", _object, oracle.balance_leader),
    ("case", "", "", _cases, Cases.judge_case),
    ("run", "", "", _cases, Cases.judge_run),
    ("perf", "", "", _itself, lambda *_: Verdict(None, None, None, "how fast the real PD was is not judged")),
    (SCENARIO, "", "should_balance", lambda record, _: with_running(given_of(record)), facts.should_balance),
    (SCENARIO, "", "higher_score", _given, facts.higher_score),
    (SCENARIO, "", "score", lambda record, _: record.object("given").object("config"), facts.distinct_score_rule),
    (SCENARIO, "", "not_worse", _given, facts.safe_location_rule),
    (SCENARIO, "", "match", _given, facts.constraint_match),
    (SCENARIO, "", "low_space", _given, facts.low_space),
    (SCENARIO, "", "peers_per_rule", _given, facts.peers_per_rule),
    (SCENARIO, "", "allowed", _given, facts.replacement_allowed),
    (SCENARIO, "", "progress", _given, facts.progress),
    (SCENARIO, "", "status", _given, facts.operator_status),
    (SCENARIO, "", "limit_s", _given, facts.operator_status),
    (SCENARIO, "store state", "", _given, facts.store_state),
    (SCENARIO, "store-limit", "", _given, facts.store_limit),
    (SCENARIO, "operator", "", _given, facts.operator_accepted),
    (SCENARIO, "merge", "", _given, decisions.merge),
    (SCENARIO, "hot-region", "", _given, decisions.hot_region),
    (SCENARIO, "balance-leader", "", _given, decisions.balance_leader),
    (SCENARIO, "balance-region", "", _given, decisions.balance_region),
    (SCENARIO, "joint-state", "", _given, decisions.joint_state),
    (SCENARIO, "split", "", _given, decisions.split),
    (SCENARIO, "learner", "", _given, decisions.learners),
))  # fmt: skip
_COMMAND = RecordJudge(SCENARIO, "", "", _given, facts.command)
_CHECK = RecordJudge(SCENARIO, "", "", _given, decisions.check)
_KINDS = tuple(row.kind for row in JUDGES if row.kind != SCENARIO)

_OF_CHECKERS = ("replica_checker", "rule_checker", "replica-checker", "rule-checker")
_CHECKED = frozenset({"down-peer", "offline", "location labels", "storage", "placement", "witness", "replica", "rule"})
"""Areas whose decisions the checkers make."""


class Replayed(NamedTuple):
    """What came of a file.

    ``records`` has an entry a record: ``line``, ``kind`` (of the record, or the scenario's area), ``id``, ``ours``,
    ``file``, ``agrees`` (None: not judged), ``because``, ``legal`` where PD may answer in several ways, ``why`` where a
    region was checked (candidates, refusals, comparisons), and ``error`` (``where``, ``expected``, ``found``) where the
    line is malformed. Notes at the head of a file are no records.
    """

    records: tuple[dict[str, Any], ...]

    @property
    def total(self) -> int:
        return len(self.records)

    @property
    def agree(self) -> int:
        """Records where our answer is the file's."""
        return sum(r["agrees"] is True for r in self.records)

    @property
    def not_judged(self) -> int:
        """Records that are not judged: of an unknown kind, or with an option that is not modelled."""
        return sum(r["agrees"] is None for r in self.records)

    @property
    def malformed(self) -> int:
        """Lines that are no record."""
        return sum("error" in r for r in self.records)

    def by_kind(self) -> list[dict[str, Any]]:
        """Counts a kind or area, in the order of the file."""
        groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for record in self.records:
            groups[record["kind"]].append(record)
        return [{"kind": kind, **_counts(Replayed(tuple(found)))} for kind, found in groups.items()]


def _counts(replayed: Replayed) -> dict[str, int]:
    disagree = replayed.total - replayed.agree - replayed.not_judged - replayed.malformed
    return {"records": replayed.total, "agree": replayed.agree, "disagree": disagree,
            "not judged": replayed.not_judged, "malformed": replayed.malformed}  # fmt: skip


def replay(path: str | Path, *, seeds: Sequence[int] = (1,)) -> Replayed:
    """Judge every record of a file.

    ``path``: JSON Lines in the form of golden/pd, as they are or gzipped. ``seeds``: of our runs of whole clusters; of
    several the middle one counts, number by number. Returns: an entry a record. Raises SourceError: the file cannot be
    read.
    """
    return Replayed(tuple(_judged(lines_of(Path(path)), seeds)))


def _judged(lines: list[bytes], seeds: Sequence[int]) -> Iterator[dict[str, Any]]:
    cases = Cases(list(_whole_runs(lines)), seeds)
    for n, line in enumerate(lines, 1):
        if not line.strip():
            continue
        entry: dict[str, Any] = {"line": n, "kind": "unknown", "id": None}
        try:
            record = Fields(_decoded(line), "record")
            if record.any("kind", "") == "meta" or record.any("id", "") == "_defaults":
                record.object("given", {})
                continue
            entry |= {
                "kind": record.text("area" if "area" in record else "kind"),
                "id": record.any("id", record.any("case", None)),
            }
            yield entry | _told(judge(record, cases))
        except UnknownRecord as e:
            yield entry | _told(Verdict(None, None, None, f"not judged: {e}"))
        except Malformed as e:
            yield entry | _refused(e)
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as e:
            yield entry | _refused(Malformed("record", "values that can go together", f"{type(e).__name__}: {e}"))


def judge(record: Fields, cases: Cases) -> Verdict:
    """Judge a record.

    A scenario is not judged where we disagree and a part of it was not read, or where only what we do not report is
    left to compare. What asks for something that is not modelled is an :class:`UnknownRecord`.
    """
    row = _row(record)
    expect = record.object("expect") if row.kind == SCENARIO else record
    given = row.read(record, cases)
    verdict = row.judge(given, expect)
    if row.kind != SCENARIO:
        return verdict
    unread = not_understood(given_of(record)) if isinstance(given, Given) else []
    untold: list[str] = []  # facts that it expects of an operator and that we do not report
    if _is_decision(record):
        options = [f.value for f in expect.objects("one_of")] if "one_of" in expect else [expect.value]
        untold = [f"expect.{k}" for k in sorted({k for option in options for k in option} - decisions.FACTS)]
    if not unread and not untold:
        return verdict
    because = f"{verdict.because}; not understood: {', '.join(unread + untold)}"
    return verdict._replace(agrees=True if verdict.agrees and not untold else None, because=because)


def _row(record: Fields) -> RecordJudge:
    if "area" not in record:
        kind = record.text("kind")
        found = next((row for row in JUDGES if row.kind == kind != SCENARIO), None)
        if found is None:
            raise UnknownRecord(f"records of kind {kind}; known are {', '.join(_KINDS)}")
        return found
    expect, area = record.object("expect"), record.text("area")
    for row in JUDGES:
        if row.kind == SCENARIO and row.area in ("", area) and (not row.expects or row.expects in expect):
            return row
    if "command" in given_of(record).settings:
        return _COMMAND
    source = record.text("source_path", "") if _is_decision(record) else ""
    if _is_decision(record) and (area in _CHECKED or any(name in area or name in source for name in _OF_CHECKERS)):
        return _CHECK
    raise UnknownRecord(f"area {area} with the expectation of {', '.join(expect.value) or 'nothing'}")


def _is_decision(record: Fields) -> bool:
    return bool({"operator", "one_of"} & set(record.object("expect").value))


def _refused(e: Malformed) -> dict[str, Any]:
    error = {"where": e.where, "expected": e.expected, "found": e.found}
    return {"ours": None, "file": None, "agrees": False, "because": str(e), "error": error}


def _decoded(line: bytes) -> object:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as e:
        raise Malformed("line", "a JSON object", f"{line[:60]!r} ({e})") from None


def _whole_runs(lines: list[bytes]) -> Iterator[Fields]:
    """Give the records of whole-cluster runs, which are judged together."""
    for line in lines:
        if b'"case"' in line:
            try:
                yield Fields(_decoded(line), "record")
            except Malformed:
                continue


def _told(verdict: Verdict) -> dict[str, Any]:
    told = {k: v for k, v in verdict._asdict().items() if k not in ("legal", "explained")}
    if verdict.legal:
        told["legal"] = list(verdict.legal)
    if (e := verdict.explained) is not None:  # candidates, refusals, comparisons, the limit that was hit
        told["why"] = {
            "candidates": list(e.candidates), "rejected": [r._asdict() for r in e.rejected],
            "scored": [s._asdict() for s in e.scored], "compared": [c._asdict() for c in e.compared], "limit": e.limit,
        }  # fmt: skip
    return told
