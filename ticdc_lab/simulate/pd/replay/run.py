"""A file of records, judged line by line: answers of PD's code (oracle.jsonl), single decisions of its tests
(scenarios.jsonl), runs of whole clusters (reference.jsonl.gz). One table has who judges what.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson

from ticdc_lab.simulate.pd.replay import oracle
from ticdc_lab.simulate.pd.replay import scenario_decisions as decisions
from ticdc_lab.simulate.pd.replay import scenario_facts as facts
from ticdc_lab.simulate.pd.replay.given import Given, given_of, not_understood, with_running
from ticdc_lab.simulate.pd.replay.records import Fields, Malformed, UnknownRecord, Verdict, lines_of

RECORDS: Mapping[str, Callable[[Fields], Verdict]] = MappingProxyType({
    "store_score": oracle.store_score,
    "distinct_score": oracle.isolation_score,
    "rule_checker": oracle.rule_checker,
    "replica_checker": oracle.replica_checker,
    "balance_region": oracle.balance_region,
    "balance_leader": oracle.balance_leader,
})  # fmt: skip
"""Who judges records of each kind, of PD's code."""


class ScenarioJudge(NamedTuple):
    """A row of the table of scenarios: which it is about, how what is given is read, and the function that judges it.

    The first row fits whose area and expectation the scenario has; "" fits any.
    """

    area: str
    expects: str
    read: Callable[[Fields], Any]
    judge: Callable[[Any, Fields], Verdict]


SCENARIOS = tuple(ScenarioJudge(*row) for row in (
    ("", "should_balance", lambda record: with_running(given_of(record)), facts.should_balance),
    ("", "higher_score", given_of, facts.higher_score),
    ("", "score", lambda record: record.object("given").object("config"), facts.distinct_score_rule),
    ("", "not_worse", given_of, facts.safe_location_rule),
    ("", "match", given_of, facts.constraint_match),
    ("", "low_space", given_of, facts.low_space),
    ("", "peers_per_rule", given_of, facts.peers_per_rule),
    ("", "allowed", given_of, facts.replacement_allowed),
    ("", "progress", given_of, facts.progress),
    ("", "status", given_of, facts.operator_status),
    ("", "limit_s", given_of, facts.operator_status),
    ("store state", "", given_of, facts.store_state),
    ("store-limit", "", given_of, facts.store_limit),
    ("operator", "", given_of, facts.operator_accepted),
    ("merge", "", given_of, decisions.merge),
    ("hot-region", "", given_of, decisions.hot_region),
    ("balance-leader", "", given_of, decisions.balance_leader),
    ("balance-region", "", given_of, decisions.balance_region),
    ("joint-state", "", given_of, decisions.joint_state),
    ("split", "", given_of, decisions.split),
    ("learner", "", given_of, decisions.learners),
))  # fmt: skip
_COMMAND, _CHECK = ScenarioJudge("", "", given_of, facts.command), ScenarioJudge("", "", given_of, decisions.check)

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
    from ticdc_lab.simulate.pd.replay.whole_runs import Cases  # which imports this package

    cases = Cases(list(_whole_runs(lines)), seeds)
    perf = Verdict(None, None, None, "how fast the real PD was is not judged")
    kinds: dict[str, Callable[[Fields], Verdict]] = dict(RECORDS)
    kinds |= {"case": cases.judge_case, "run": cases.judge_run, "perf": lambda record: perf}
    for n, line in enumerate(lines, 1):
        if not line.strip():
            continue
        entry: dict[str, Any] = {"line": n, "kind": "unknown", "id": None}
        try:
            record = Fields(_decoded(line), "record")
            if record.any("kind", "") == "meta" or record.any("id", "") == "_defaults":
                record.object("given", {})
                continue
            is_scenario = "area" in record
            kind = record.text("area" if is_scenario else "kind")
            entry |= {"kind": kind, "id": record.any("id", record.any("case", None))}
            if not is_scenario and kind not in kinds:
                raise UnknownRecord(f"records of kind {kind}; known are {', '.join(kinds)}")
            yield entry | _told(judge_scenario(record) if is_scenario else kinds[kind](record))
        except UnknownRecord as e:
            yield entry | _told(Verdict(None, None, None, f"not judged: {e}"))
        except Malformed as e:
            yield entry | _refused(e)
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as e:
            yield entry | _refused(Malformed("record", "values that can go together", f"{type(e).__name__}: {e}"))


def judge_scenario(record: Fields) -> Verdict:
    """Judge a scenario.

    It is not judged where we disagree and a part of it was not read, or where only what we do not report is
    left to compare. What asks for something that is not modelled is an :class:`UnknownRecord`.
    """
    row, expect = _judge(record), record.object("expect")
    given = row.read(record)
    verdict = row.judge(given, expect)
    unread = not_understood(given_of(record)) if isinstance(given, Given) else []
    untold: list[str] = []  # facts that it expects of an operator and that we do not report
    if _is_decision(record):
        options = [f.value for f in expect.objects("one_of")] if "one_of" in expect else [expect.value]
        untold = [f"expect.{k}" for k in sorted({k for option in options for k in option} - decisions.FACTS)]
    if not unread and not untold:
        return verdict
    because = f"{verdict.because}; not understood: {', '.join(unread + untold)}"
    return verdict._replace(agrees=True if verdict.agrees and not untold else None, because=because)


def _judge(record: Fields) -> ScenarioJudge:
    expect, area = record.object("expect"), record.text("area")
    for row in SCENARIOS:
        if row.area in ("", area) and (not row.expects or row.expects in expect):
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
