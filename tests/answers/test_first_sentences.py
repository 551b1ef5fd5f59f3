"""The first sentence answers: other numbers of partitions, a stuck checkpoint, a torn transaction."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
from summaries import summary
from whatifs import what_if

from ticdc_lab.answers import audit, partitions, stalls, transactions, watermarks
from ticdc_lab.answers.advice import _dispatchers_now, _newly
from ticdc_lab.facts.watermarks import Rhythm
from ticdc_lab.repartition import Moves

MOVED = {
    1: Moves(5, 4, 3, 2, 1.0, 1.0),
    2: Moves(5, 0, 3, 0, 1.0, 1.0),
    4: Moves(5, 3, 3, 1, 1.0, 2.0),
}


def rules(*named: str, sure: bool = True, n: int = 40) -> pd.DataFrame:
    """The dispatchers of shop.orders and shop.b."""
    tables = zip(("orders", "b"), named, strict=True)
    of = [{"schema_name": "shop", "table_name": t, "rule": r, "n_rows": n, "n_explained": n, "by_chance": not sure,
           "tried": "table", "partitions": 4} for t, r in tables]  # fmt: skip
    return pd.DataFrame(of)


def test_the_first_sentence_answers() -> None:
    """Keys that move, the pause, the fullest partition before and after, and what newly breaks."""
    answer = partitions(
        MOVED, rules=rules("index-value", "table"), measured=what_if(), before=2, to=4, source="a b.jsonl"
    )
    assert answer.finding.startswith(
        "From 2 to 4 partitions, 1 of 3 keys move (60 % of the rows), and the fullest partition takes 50 % of the "
        "rows instead of 50 % (2.00 times the mean instead of 1.00). TiCDC just adds partitions, which newly breaks: "
        "rows stay in one partition (1 key, where changed again); resolved events on all partitions (until the new "
        "ones have one). With the design's procedure, which TiCDC never built, the changefeed pauses "
    )
    assert answer.finding.endswith(" s and nothing newly breaks.")
    assert list(answer.frame["just_added"]) == ["impossible", "nothing", "may reorder 1 key"]
    assert list(answer.frame["fullest_share"]) == [1, 0.5, 0.5]
    other = "The log has 2 partitions; for another number: ticdc-lab expand 'a b.jsonl' --before 4 --after 8"
    assert other in answer.details
    assert list(answer.frame["partitions"]) == [1, 2, 4] and list(answer.frame["pause_s"] > 0) == [True, False, True]
    assert any("ticdc-lab expand 'a b.jsonl' --after 4" in said for said in answer.details) and not answer.limits


def test_only_what_the_number_breaks_is_called_new() -> None:
    """From one partition on a table's order is lost; what two partitions break already is not new with four."""
    by = rules("ts", "table")
    first = partitions(MOVED, rules=by, measured=what_if(), before=1, to=2, source="x")
    breaks = "newly breaks: order of a row's changes (shop.orders)"
    assert f"partitions, which {breaks}" in first.finding and f" s and this {breaks}" in first.finding
    same = partitions(MOVED, rules=by, measured=what_if(), before=2, to=4, source="x")
    assert same.finding.endswith(" s and nothing newly breaks.")
    fewer = partitions(MOVED, rules=by, measured=what_if(), before=2, to=1, source="x")
    assert " TiCDC cannot do this, as Kafka removes no partitions. With the design's procedure, " in fewer.finding
    assert partitions(MOVED, rules=by, measured=what_if(), before=2, to=2, source="x").finding.endswith(
        " Nothing newly breaks."
    )
    assert set(same.frame["newly_broken"]) == {"nothing"}


def test_what_is_a_guess_or_not_measured_is_said() -> None:
    """A rule that few rows show, and one that was not measured."""
    answer = partitions(
        MOVED, rules=rules("columns:x", "table", sure=False), measured=what_if(), before=2, to=4, source="x"
    )
    assert answer.limits == [
        "What newly breaks is not known for shop.orders: the rule of the table was not measured.",
    ]
    assert answer.finding.startswith("From 2 to 4 partitions, about 1 of 3 keys move ")
    assert answer.finding.endswith(
        ". The moves of shop.orders (columns:x), shop.b (table) are an estimate: the rule explains some rows only, or "
        "is a guess."
    )


def test_a_rule_that_two_rows_show_is_a_guess() -> None:
    """One of the columns explains them by chance: it is not the dispatcher that the table has, and moves by it are
    reported as an estimate.
    """
    by = rules("columns:y", "table", n=2)
    assert _dispatchers_now(by) == {} and set(_dispatchers_now(rules("columns:y", "table")).values()) == {
        "columns:y", "table",
    }  # fmt: skip
    answer = partitions(MOVED, rules=by, measured=what_if(), before=2, to=4, source="x")
    assert answer.finding.endswith(
        " The moves of shop.orders (columns:y), shop.b (table) are an estimate: too few rows show the rule, which is a "
        "guess."
    )


def test_moves_of_a_table_that_is_routed_are_an_estimate() -> None:
    """Its rows lie by the hash of its name upstream, and are moved by the one of its name in the log."""
    by = rules("index-value", "table").assign(name_crc=[7, None])
    answer = partitions(MOVED, rules=by, measured=what_if(), before=2, to=4, source="x")
    assert answer.finding.endswith(
        " The moves of shop.orders (index-value) are an estimate: the rule hashes another name of the table, the moves "
        "its name in the log."
    )
    assert not answer.limits


def test_what_consumers_confuse_before_the_change_is_not_new() -> None:
    """Two deliveries up to the checkpoint have nothing to do with the change; with one of them behind it they have."""
    found = [
        {"guarantee": "changes_are_applied_in_order", "table": t, "evidence": [{"commit_ts": 5}, {"commit_ts": ts}]}
        for t, ts in (("a", 7), ("b", 7), ("b", 9))
    ]
    old = {"guarantee": "rows_stay_in_one_partition", "table": "a", "evidence": [{"commit_ts": 9}]}
    parts = {"before": pd.DataFrame([old]), "after": pd.DataFrame([old]), "consumer": pd.DataFrame(found[:2])}
    assert _newly(parts, until=7) == {}
    assert _newly(parts | {"consumer": pd.DataFrame(found[2:])}, until=7) == {"changes_are_applied_in_order": ["b"]}
    moves = [f | {"guarantee": "rows_stay_in_one_partition", "table": t} for f, t in zip(found, "abc", strict=True)]
    unmarked = {"guarantee": "resolved_events_on_all_partitions", "table": None, "evidence": [{"commit_ts": 5}]}
    added = {"whole": pd.DataFrame([*moves, unmarked])}  # without Admin events there is no part before the change
    assert _newly(added, until=8) == {
        "rows_stay_in_one_partition": ["c"], "resolved_events_on_all_partitions": ["the log"],
    }  # fmt: skip


def test_a_checkpoint_that_is_stuck_comes_before_a_longer_stall() -> None:
    """Who is stuck at the end, for how long and why; else the longest stall. What is not there is at the end."""
    cause = [{"cause": "partition-silent", "says": "the others went on", "cannot_tell": "why"}]
    longer, stuck = (
        {"topic": "t", "held_ts": 1, "next_ts": n, "step_s": s, "everywhere": n is not None, "partitions": [2],
         "n_rows": 0, "causes": cause, "stood_s": None, "since": None}
        for n, s in ((2, 9.0), (None, 5.0))
    )  # fmt: skip
    rhythm = Rhythm(usual_s=0.5, longest_s=9.0)
    of = {"stall_s": 1.0, "rhythm": rhythm, "qualified": " except for data in 1 missing offset"}
    first = stalls(pd.DataFrame([longer, stuck]), **of).finding
    assert first.startswith("Partition 2 is stuck at the end of the log, for 5.000 s, cause partition-silent: the ")
    assert "Watermarks of this log stalled 2 times for more than 1 s except for data in 1 missing offset." in first
    done = stalls(pd.DataFrame([longer]), **of).finding
    assert done.startswith("All partitions stalled longest, 9.000 s, cause partition-silent: the others went on. ")
    none = stalls(pd.DataFrame(), **of).finding
    assert none == "No watermark of this log stalled for more than 1 s except for data in 1 missing offset."
    silent = stalls(pd.DataFrame(), **of, early_ends=("Partition 3 ends early.", "Another, too."))
    assert silent.finding == f"Partition 3 ends early. {none}" and [*silent.limits] == ["Another, too."]
    homes = pd.DataFrame(
        {"topic": ["t"] * 3, "partition": [0, 1, 2], "resolved_ts": pd.array([9, None, None], "Int64")}
    )
    said = stalls(pd.DataFrame(), **of, partitions=homes).finding
    unmarked = "Partitions 1, 2 have events but no watermark, so the log is not known to be complete up to any moment."
    assert said == f"{unmarked} {none}"
    assert stalls(pd.DataFrame([longer]), **of, partitions=homes.head(2)).finding.startswith(
        "Partition 1 has events but no"
    )
    bare = stalls(pd.DataFrame(), **of, partitions=homes.tail(2)).finding
    assert bare == "The log has no watermark, so it cannot show whether any stalled."


def test_watermarks_that_never_advance_are_not_called_steady() -> None:
    """A folder states one checkpoint, and a short log one watermark a partition: neither shows that none stalled."""
    none = {"stall_s": 1.0, "rhythm": Rhythm(usual_s=0.0, longest_s=0.0)}
    one = pd.DataFrame({"topic": ["t"] * 2, "partition": [0, 1], "resolved_ts": pd.array([9 << 18, 8 << 18], "Int64")})
    of_log = stalls(pd.DataFrame(), **none, partitions=one)
    assert of_log.finding.startswith("No resolved_ts advances in this log; the lowest of 2 partitions is 1970")
    assert "(resolved_ts 2097152): no row change is more than 1 s above one of its topic. Whether " in of_log.finding
    of_folder = stalls(pd.DataFrame(), **none, partitions=one, of_storage=True, qualified=" except for x")
    assert of_folder.finding.startswith("The folder states one checkpoint, its last, 1970-01-01 ")
    assert of_folder.finding.endswith("1 s above it except for x. Whether earlier checkpoints stalled cannot be seen.")
    assert not of_log.details and not of_folder.details  # no rhythm of what has none
    silent = pd.concat([one, one.assign(partition=[2, 3], resolved_ts=pd.array([None, None], "Int64"))])
    assert stalls(pd.DataFrame(), **none, partitions=silent).finding.startswith("Partitions 2, 3 have events but no ")


def test_the_audit_names_torn_transactions_beside_its_findings() -> None:
    """Which gap each is beside is a detail. A finding that no drawing fits has no chart of one bar."""
    gap = {"topic": "t", "partition": 0, "first_missing": 5, "last_missing": 6}
    answer = audit(replace(summary(), suspects=pd.DataFrame([gap | {"commit_ts": ts} for ts in (7, 8, 9)])))
    first = (
        "The log has 1 error about 1 guarantee (rows stay in one partition: shop.orders). 3 transactions may be "
        "torn (commit_ts 7 at 1970-01-01 00:00:00.000 UTC and 2 more). "
    )
    assert answer.finding.startswith(first) and "missing: 5 to 6 of partition 0. " in answer.details[0]
    assert "torn" not in audit(summary()).finding
    undrawn = summary().findings.head(1).assign(guarantee="rows_have_a_table")
    assert not audit(replace(summary(), findings=undrawn)).figures


def test_without_watermarks_no_transaction_is_judged_and_suspects_are_counted_as_the_least() -> None:
    """Why none can be judged comes first; how many may be torn is a lower bound where gaps were not searched."""
    of = replace(summary(), source="a b.jsonl")
    silent = replace(of, partitions=of.partitions.assign(resolved_ts=pd.array([None] * len(of.partitions), "Int64")))
    why = "No partition has a watermark, so it is not known whether any of "
    assert transactions(silent).finding.startswith(why) and not transactions(of).finding.startswith("No partition")
    one = silent.partitions.assign(resolved_ts=pd.array([9, None], "Int64"))
    assert transactions(replace(of, partitions=one)).finding.startswith("Partition 1 has no watermark, so it is not ")
    assert transactions(of).finding.startswith("No transaction is known to be torn, as no offset is missing. ")
    assert of.counts is not None
    cut = replace(of, counts=replace(of.counts, lacking=1))
    assert transactions(cut).finding.startswith("No transaction is known to be torn. "), "gaps were not searched"
    gap = {"topic": "t", "partition": 0, "first_missing": 5, "last_missing": 6}
    torn = pd.DataFrame([gap | {"commit_ts": ts} for ts in range(7)])
    answer = transactions(replace(silent, suspects=torn))
    command = "ticdc-lab audit 'a b.jsonl' --json"
    assert answer.finding.startswith(why)
    zero = "(1970-01-01 00:00:00.000 UTC)"
    named = ", ".join(f"{ts} {zero}" for ts in range(3))
    places = (
        "Beside them offsets are missing: 5 to 6 of partition 0. No evidence shows which; the nearest by commit_ts "
        f"come first. All: {command}. "
    )
    assert f" 7 transactions may be torn: commit_ts {named} and 4 more. {places}" in answer.finding
    more = replace(silent, suspects=torn, counts=replace(of.counts, lacking=3))
    assert " At least 7 transactions may be torn: " in transactions(more).finding
    assert transactions(more).finding.endswith(" or have no commit_ts beside them.")


def test_a_change_that_is_lost_without_a_missing_offset_comes_first() -> None:
    """No transaction is called whole, and the broken chain of images is named with its place and time."""
    of = summary()
    done = replace(of, transaction_totals=of.transaction_totals.assign(pending=0))
    assert transactions(done).finding.startswith("None of 20 transactions is pending, and none is known to be torn")
    chain = of.findings.iloc[:1].assign(guarantee="row_images_chain", severity="error", key="id=1")
    chain["evidence"] = [[{"commit_ts": 7, "partition": 0, "offset": 1}, {"commit_ts": 9, "partition": 0, "offset": 2}]]
    found = transactions(replace(done, findings=chain)).finding
    assert found.startswith(
        "The audit found 1 broken chain of row images: either a change is lost, and its transaction is torn, or "
        "an image is wrong: shop.orders id=1 between commit_ts "
        "7 (1970-01-01 00:00:00.000 UTC) and 9 (1970-01-01 00:00:00.000 UTC). None of 20 transactions is pending ("
    )


def test_a_partition_without_the_last_watermark_is_named() -> None:
    """Its tail may be cut off: by what is complete, and where transactions wait. One that ends earlier is named so."""
    of = summary()
    ends = pd.DataFrame({"topic": ["t"] * 3, "partition": [0, 1, 2], "resolved_ts": [9 << 18, 9 << 18, 8 << 18]})
    cut = replace(of, early_ends=(), partitions=ends.astype({"resolved_ts": "Int64"}))
    [hint] = watermarks(cut).limits
    assert hint.startswith("Partition 2 of t does not have the last watermark, 2359296 (1970-01-01 ")
    assert transactions(cut).limits[-1] == hint
    done = replace(cut, transaction_totals=of.transaction_totals.assign(pending=0))
    assert hint not in transactions(done).limits, "nothing waits"
    for other in (
        cut.partitions.assign(resolved_ts=ends["resolved_ts"].iloc[0]),
        ends.iloc[:0],
        ends.iloc[::-1].head(1),
    ):
        assert not watermarks(replace(cut, partitions=other)).limits
    early = replace(cut, early_ends=("Partition 2 ends early.",))
    assert [*watermarks(early).limits] == [transactions(early).limits[-1]] == ["Partition 2 ends early."]


def test_a_list_that_is_cut_says_so() -> None:
    """More transactions are pending than the sample has: how many, and the command that gives all."""
    of = summary()
    assert len(transactions(of).frames["pending"]) == 1 and len(transactions(of).details) == 1
    more = replace(of, source="a b.jsonl", transaction_totals=of.transaction_totals.assign(pending=2))
    assert transactions(more).details[1] == (
        "At most 1 of 2 pending transactions are listed; all: "
        "ticdc-lab transactions 'a b.jsonl' --out transactions.jsonl"
    )
