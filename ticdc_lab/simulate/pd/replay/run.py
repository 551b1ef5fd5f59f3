"""A file of records, judged line by line: answers of PD's code (oracle.jsonl), single decisions of its tests
(scenarios.jsonl), runs of whole clusters (reference.jsonl.gz). One table has who judges what.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from ticdc_lab.pd_core.recorded import oracle
from ticdc_lab.pd_core.recorded import scenario_decisions as decisions
from ticdc_lab.pd_core.recorded import scenario_facts as facts
from ticdc_lab.pd_core.recorded.given import Given, given_of, not_understood, with_running
from ticdc_lab.pd_core.recorded.records import Fields, Malformed, UnknownRecord, Verdict, lines_of
from ticdc_lab.simulate.pd.replay.whole_runs import Cases


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
    """RecordJudge every record of a file.

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
