"""A file of records, judged line by line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from ticdc_lab.simulate.pd.replay.records import Fields, Malformed, UnknownRecord, Verdict, lines_of
from ticdc_lab.simulate.pd.replay.scenarios import JUDGES, judge_scenario

if TYPE_CHECKING:
    from ticdc_lab.simulate.pd.replay.whole_runs import Cases

RUNS = ("case", "run", "perf")
"""Records of whole-cluster runs (golden/pd/reference.jsonl.gz); how fast the real PD was is not judged."""


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
        """Records to which we say what the file says."""
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

    Parameters
    ----------
    path
        JSON Lines in the form of golden/pd, as they are or gzipped.
    seeds
        Of our runs of whole clusters; of several the middle one counts, number by number.

    Returns
    -------
    Replayed
        An entry a record.

    Raises
    ------
    SourceError
        The file cannot be read.
    """
    return Replayed(tuple(_judged(lines_of(Path(path)), seeds)))


def _judged(lines: list[bytes], seeds: Sequence[int]) -> Iterator[dict[str, Any]]:
    from ticdc_lab.simulate.pd.replay.whole_runs import Cases  # which imports this package

    defaults: dict[str, Any] = {}
    cases = Cases(list(_whole_runs(lines)), seeds)
    for n, line in enumerate(lines, 1):
        if not line.strip():
            continue
        entry: dict[str, Any] = {"line": n, "kind": "unknown", "id": None}
        try:
            record = Fields(_decoded(line), "record")
            if record.any("kind", "") == "meta":
                continue
            if record.any("id", "") == "_defaults":
                defaults = dict(record.object("given", {}).value)
                continue
            entry |= {"kind": _kind(record), "id": record.any("id", record.any("case", None))}
            yield entry | _told(_verdict(record, defaults, cases))
        except UnknownRecord as e:
            yield entry | _told(Verdict(None, None, None, f"not judged: {e}"))
        except Malformed as e:
            yield entry | _refused(e)
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as e:
            yield entry | _refused(Malformed("record", "values that can go together", f"{type(e).__name__}: {e}"))


def _refused(e: Malformed) -> dict[str, Any]:
    error = {"where": e.where, "expected": e.expected, "found": e.found}
    return {"ours": None, "file": None, "agrees": False, "because": str(e), "error": error}


def _decoded(line: bytes) -> object:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as e:
        raise Malformed("line", "a JSON object", f"{line[:60]!r} ({e})") from None


def _kind(record: Fields) -> str:
    return record.text("area") if "area" in record else record.text("kind")


def _whole_runs(lines: list[bytes]) -> Iterator[Fields]:
    """Give the records of whole-cluster runs, which are judged together."""
    for line in lines:
        if b'"case"' in line:
            try:
                yield Fields(_decoded(line), "record")
            except Malformed:
                continue


def _verdict(record: Fields, defaults: dict[str, Any], cases: Cases) -> Verdict:
    if "area" in record:
        return judge_scenario(record, defaults)
    kind = record.text("kind")
    if kind in RUNS:
        if kind == "perf":
            return Verdict(None, None, None, "how fast the real PD was is not judged")
        return cases.judge_case(record) if kind == "case" else cases.judge_run(record)
    judges = {name: judge for name, _, judge in JUDGES if "_" in name}
    if kind not in judges:
        raise UnknownRecord(f"records of kind {kind}; known are {', '.join((*judges, *RUNS))}")
    return judges[kind](record)


def _told(verdict: Verdict) -> dict[str, Any]:
    told: dict[str, Any] = {
        "ours": verdict.ours,
        "file": verdict.file,
        "agrees": verdict.agrees,
        "because": verdict.because,
    }
    if verdict.legal:
        told["legal"] = list(verdict.legal)
    if (e := verdict.explained) is not None:  # candidates, refusals, comparisons, the limit that was hit
        told["why"] = {
            "candidates": list(e.candidates), "rejected": [r._asdict() for r in e.rejected],
            "scored": [s._asdict() for s in e.scored], "compared": [c._asdict() for c in e.compared], "limit": e.limit,
        }  # fmt: skip
    return told
