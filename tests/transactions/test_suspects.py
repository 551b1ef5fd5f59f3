"""Transactions that a gap in offsets may have torn are named, wherever messages are missing."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from conftest import json_lines
from pyspark.sql import SparkSession

import ticdc_lab
from ticdc_lab.answers.summary import of_transactions
from ticdc_lab.engine import shuffle
from ticdc_lab.log import Log
from ticdc_lab.transactions import OffsetGap, restoring, suspects
from ticdc_lab.widgets.log_panel import log_panel

SMALL = "messages_canal-json-tidb_small.jsonl.gz"


def without(tmp_path: Path, spark: SparkSession, *lost: tuple[int, int]) -> Log:
    """The sample without the messages at some partitions and offsets."""
    place = tmp_path / "holes.jsonl"
    kept = [m for m in json_lines(SMALL) if (m["partition"], m["offset"]) not in lost]
    place.write_text("".join(json.dumps(m) + "\n" for m in kept), encoding="utf-8")
    return ticdc_lab.open(str(place), spark=spark)


def test_a_transaction_of_which_a_message_is_missing_is_a_suspect(spark: SparkSession, tmp_path: Path) -> None:
    """Of two gaps in two partitions, with the rows that are left; audit and transactions show the same sentence."""
    whole = ticdc_lab.open(str(Path("data") / SMALL), spark=spark)
    rows = whole.sql("SELECT partition, \"offset\", commit_ts FROM events WHERE kind = 'row' ORDER BY ALL")
    runs: dict[int, list[tuple[int, int]]] = {}
    for p, offset, ts in rows.itertuples(index=False, name=None):
        runs.setdefault(int(p), []).append((int(offset), int(ts)))
    lost = {}
    for p in (1, 3):  # a message between two others of its transaction
        (a, ts), (b, _), (c, _) = next(
            three for three in zip(runs[p], runs[p][1:], runs[p][2:], strict=False) if len({t for _, t in three}) == 1
        )
        assert [a + 1, b + 1] == [b, c] and all(x < y for x, y in pairwise((a, b, c)))
        lost[p, b] = ts
    assert whole.transactions().frames.get("suspects") is None
    log = without(tmp_path, spark, *lost)
    found = log.transactions().frames["suspects"]
    nearest = found.drop_duplicates(["partition", "first_missing"])
    told = {(r["partition"], r["first_missing"]): r for r in nearest.to_dict("records")}
    assert nearest["is_between"].all() and found["apart_ms"].is_monotonic_increasing
    assert {place: r["commit_ts"] for place, r in told.items()} == lost
    assert all(r["n_rows"] >= 2 and r["partition"] in r["partitions"] for r in told.values())
    [said] = log.audit().details
    assert said in log.transactions().finding and all(str(ts) in said for ts in lost.values())


def test_whichever_row_is_missing_its_transaction_is_a_suspect(spark: SparkSession) -> None:
    """Rows of several tables are not in commit_ts order; what a watermark or a table's next row excludes is none."""
    whole = ticdc_lab.open(str(Path("data") / SMALL), spark=spark)
    rows = whole.sql("SELECT partition, \"offset\", commit_ts, count(*) OVER (PARTITION BY commit_ts) AS n FROM events "
                     "WHERE kind = 'row' ORDER BY ALL")  # fmt: skip
    some = rows[(rows["n"] > 1) & (rows["offset"] > 0)].sample(40, random_state=7)
    lost = {(int(p), int(o)): int(ts) for p, o, ts, _ in some.itertuples(index=False, name=None)}
    missed, beside, n = 0, 0, 0
    for (p, o), ts in lost.items():
        left = whole.events.where(f"NOT (partition = {p} AND `offset` = {o})")
        found = left.transform(suspects, gaps=[OffsetGap("small", p, o, o)]).select("commit_ts", "is_between").collect()
        n += len(found)
        missed += ts not in {r["commit_ts"] for r in found}
        beside += ts in {r["commit_ts"] for r in found if r["is_between"]}
    assert missed <= 1 and beside < 36 and n / len(lost) < 60, (missed, beside, n)


def test_suspects_are_in_the_sample_and_marked(spark: SparkSession, tmp_path: Path) -> None:
    """A message is lost from the file: report and workbench draw each suspect, though none is pending or sampled."""
    log = without(tmp_path, spark, (2, 50))
    named = log.transactions().frames["suspects"]
    sampled = of_transactions(log.change_log)["transactions"]
    assert sampled is not None and not set(named["commit_ts"]) <= set(sampled["commit_ts"]), "some are not sampled"
    assert len(named) > 5 and sampled["complete"].all() and not sampled["duplicates"].any()
    report = ticdc_lab.report(log, tmp_path / "report.html").read_text(encoding="utf-8")
    panel = log_panel(log.summary, pictures=("transactions",))
    in_report = next(f for f in re.findall(r"<script type=[^>]*json\">(.*?)</script>", report) if '"may be torn' in f)
    for data in (json.loads(in_report)["data"], json.loads(panel.figure.to_json())["data"]):
        [marks] = [t for t in data if t["name"].startswith("may be torn")]
        assert {*marks["x"]} == {2} and marks["marker"]["symbol"] == "diamond-open"
        assert {*marks["meta"]["selects"]["each"]["commit_ts"]} == {*map(str, named["commit_ts"])}
    assert panel.figure.finding.startswith(f"{len(named)} transactions may be torn. The other ")
    for partition, left in ((2, named), (3, named[named["partitions"].map(lambda homes: 3 in homes)])):
        panel.value = replace(panel.value, partition=partition)
        assert panel.figure.finding.startswith(f"{len(left)} transactions may be torn. "), "of what is chosen"


def test_very_many_places_do_not_decode_a_log_again(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where this process restores transactions, what it knows of their places goes nowhere, however large it is."""
    log = ticdc_lab.open(str(Path("data") / SMALL), spark=spark).change_log
    assert log.files is not None and not log.files.by_spark
    wanted = of_transactions(log)["transaction_totals"]
    monkeypatch.setattr(shuffle, "SENT", 0)
    monkeypatch.setattr(restoring, "log_places", lambda events: pytest.fail("places were gathered again"))
    found = of_transactions(log)["transaction_totals"]
    assert wanted is not None and found is not None and found.equals(wanted)


def test_suspects_that_a_broken_chain_points_to_come_first(spark: SparkSession, tmp_path: Path) -> None:
    """Three rows of a table are lost; the next changes of two of its keys do not match, which leaves few suspects.

    The loss comes before what the dispatch rules explain, though these have more findings.
    """
    log = without(tmp_path, spark, (1, 213), (1, 214), (1, 215))
    answer, audited = log.transactions(), log.audit()
    likely = answer.frames["suspects"][answer.frames["suspects"]["by_chain"].map(len) > 0]
    torn = 470603993671008256
    assert torn in [*likely["commit_ts"]] and 3 * len(likely) < len(answer.frames["suspects"])
    assert [*likely.index] == [*range(len(likely))] and {t for of in likely["by_chain"] for t in of} == {"shop.audit"}
    assert f"most likely one of these {len(likely)}, because a change of shop.audit" in answer.finding
    assert str(torn) in answer.finding.partition("Beside")[0]
    first = [*audited.frames["causes"]["guarantee"]]
    assert first[:2] == ["row_images_chain", "offsets_are_contiguous"] and "rows_stay_in_one_partition" in first
    assert [*audited.frames["verdict"]["guarantee"]][:2] == first[:2]


@pytest.mark.parametrize("sides", ["first", "last"])
def test_what_is_missing_at_an_end_has_no_suspects(spark: SparkSession, tmp_path: Path, sides: str) -> None:
    """It has one neighbour; nothing is guessed."""
    offsets = sorted(m["offset"] for m in json_lines(SMALL) if m["partition"] == 2)
    log = without(tmp_path, spark, (2, offsets[0 if sides == "first" else -1]))
    assert "suspects" not in log.transactions().frames


def test_the_count_of_chains_that_are_not_listed_names_no_place(spark: SparkSession, tmp_path: Path) -> None:
    """An audit that lists one finding of each guarantee counts the others, without evidence."""
    few = without(tmp_path, spark, (1, 213), (1, 214), (1, 215)).audit(most=1).frames
    chains = few["findings"][few["findings"]["guarantee"] == "row_images_chain"]
    assert chains["evidence"].isna().tolist() == [False, True]
    assert few["suspects"]["by_chain"].map(len).any()
