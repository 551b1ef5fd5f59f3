"""A line that is no record gets an entry with line, expected and found; no line makes a replay fail."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from counted_work import lines_run

from ticdc_lab.errors import SourceError
from ticdc_lab.simulate.pd.replay import Replayed, replay

GOLDEN = Path(__file__).parents[2] / "data" / "golden" / "pd"
WRONG: tuple[Any, ...] = (None, "x", -1.5, [], {}, True, [None], 1e400)


def replayed(folder: Path, *lines: bytes) -> Replayed:
    """Judge lines."""
    path = folder / "records.jsonl"
    path.write_bytes(b"\n".join(lines))
    return replay(path)


def one_of_each() -> list[dict[str, Any]]:
    """The first record of each kind and area."""
    with gzip.open(GOLDEN / "oracle.jsonl.gz") as f:
        lines = [json.loads(line) for line in (*f, *(GOLDEN / "scenarios.jsonl").open())]
    found: dict[str, dict[str, Any]] = {}
    for record in lines[1:]:
        found.setdefault(str(record.get("kind") or record.get("area")), record)
    return [r for name, r in found.items() if name not in ("meta", "None")]


def test_broken_json_and_a_missing_field_are_told_apart(tmp_path: Path) -> None:
    """Each entry shows where, what was expected and what was found."""
    r = replayed(tmp_path, b'{"kind": "store_score"', b"[1]", b'{"kind": "distinct_score"}', b"\xff", b"{}")
    errors = [e["error"] for e in r.records]
    assert [e["line"] for e in r.records] == [1, 2, 3, 4, 5]
    assert [e["where"] for e in errors] == ["line", "record", "record.stores", "line", "record.kind"]
    assert r.malformed == r.total == 5 and r.agree == 0


def test_an_unknown_kind_is_not_judged(tmp_path: Path) -> None:
    """A record of a kind that no one models is no error: its entry shows that it is unknown, and what is known."""
    (entry,) = replayed(tmp_path, b'{"kind": "tide"}').records
    assert entry["agrees"] is None and "error" not in entry
    assert "kind tide" in entry["because"] and "store_score" in entry["because"]


@pytest.mark.parametrize("record", one_of_each(), ids=lambda r: str(r.get("id") or r["kind"]))
def test_no_damage_to_a_record_makes_a_replay_fail(record: dict[str, Any], tmp_path: Path) -> None:
    """Every field, at every depth, is taken away and replaced by values of other forms."""
    damaged = [json.dumps(d).replace("Infinity", "1e999").encode() for d in damages(record)]
    r = replayed(tmp_path, *damaged)
    assert r.total == len(damaged) > 10
    errors = [e["error"] for e in r.records if "error" in e]
    assert all(e.keys() == {"where", "expected", "found"} for e in errors)
    assert [e for e in errors if e["where"] == "record" and "Error" in e["found"]] == []


def damages(value: Any) -> list[Any]:
    """A value with one of its parts missing or of another form."""
    if isinstance(value, dict):
        parts = [{**value, k: d} for k, v in value.items() for d in damages(v)]
        return parts + [{k: v for k, v in value.items() if k != gone} for gone in value] if value else list(WRONG)
    if isinstance(value, list):
        return [*([d, *value[1:]] for d in damages(value[0])), *WRONG] if value else list(WRONG)
    return list(WRONG)


def test_whole_runs_without_their_case_are_malformed(tmp_path: Path) -> None:
    """A run belongs to a case of its file; how fast the real PD was is not judged."""
    path = tmp_path / "reference.jsonl.gz"
    lines = b'{"kind": "meta"}\n{"kind": "case", "case": "a"}\n\n{"kind": "run", "case": "b"}\n{"kind": "perf"}\n'
    path.write_bytes(gzip.compress(lines))
    r = replay(path)
    assert (r.total, r.agree, r.not_judged, r.malformed) == (3, 0, 2, 1)


@pytest.mark.parametrize("content", [None, b"\x1f\x8bno gzip"])
def test_a_file_that_cannot_be_read_is_an_error(content: bytes | None, tmp_path: Path) -> None:
    """No file, or a damaged one, ends with a message."""
    path = tmp_path / "records.jsonl.gz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SourceError, match="cannot be read"):
        replay(path)


def test_a_record_too_large_to_go_through_is_refused(tmp_path: Path) -> None:
    """Forty peers, or two on one store, are reported as such at once."""
    (record,) = [r for r in one_of_each() if r.get("kind") == "rule_checker"]
    for peers in (list(range(1, 41)), [1, 1, 2]):
        record["given"]["regions"][0]["peer_stores"] = peers
        (entry,) = replayed(tmp_path, json.dumps(record).encode()).records
        assert entry["error"]["expected"] == "at most 15 peers, each on a store of its own"


def test_many_regions_are_gone_through_in_time(tmp_path: Path) -> None:
    """A round of balance-leader over 300 regions takes some lines a region, not each region for each."""
    (record,) = [r for r in one_of_each() if r.get("kind") == "balance_leader"]
    record["given"]["regions"] *= 25
    (entry,) = replayed(tmp_path, json.dumps(record).encode()).records
    assert "error" not in entry
    regions = len(record["given"]["regions"])
    assert lines_run(lambda: replayed(tmp_path, json.dumps(record).encode())) < 3_000 * regions
