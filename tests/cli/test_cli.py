"""Every command of the command line, as a user calls it."""

from __future__ import annotations

import base64
import gc
import gzip
import json
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result
from conftest import golden, json_lines
from pyspark.sql import SparkSession
from stored import unpack

from ticdc_lab.cli import main
from ticdc_lab.cli.layout import COMMANDS, EXAMPLES, Moment
from ticdc_lab.dispatch import Changefeed, rules_from_config
from ticdc_lab.engine.sail_process import FEW_SEARCHES
from ticdc_lab.events.schema import EVENTS

OPEN = str(golden("messages_open-protocol_small.jsonl.gz"))
CANAL = str(golden("messages_canal-json-tidb_small.jsonl.gz"))
PLAIN = str(golden("messages_canal-json_small.jsonl.gz"))


@pytest.fixture
def lab(spark: SparkSession) -> Any:
    """``lab("audit", FILE)`` runs a command on the suite's session."""

    def run(*args: str, code: int | None = 0) -> Result:
        result = CliRunner().invoke(main, list(args), obj=spark)
        if code is not None:
            assert result.exit_code == code, result.output
        return result

    return run


def lines(path: Path) -> list[dict[str, Any]]:
    """Records of a JSON Lines file, plain or gzip."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as f:
        return [json.loads(line) for line in f]


def write_lines(path: Path, messages: list[dict[str, Any]]) -> str:
    """Write a capture file and give its path."""
    path.write_text("".join(json.dumps(m) + "\n" for m in messages))
    return str(path)


def test_a_command_seldom_searches_for_cycles() -> None:
    """Going through what it imported after every 700 objects took a tenth of its time."""
    gc.set_threshold(700)
    assert CliRunner().invoke(main, ["events", "--help"]).exit_code == 0
    assert gc.get_threshold()[0] == FEW_SEARCHES


def test_events_writes_the_contract(lab: Any, tmp_path: Path) -> None:
    """Every line has the columns of the events contract, nulls kept, and the counts are reported."""
    out = tmp_path / "events.jsonl.gz"
    said = lab("events", OPEN, "--out", str(out), "--json")
    facts = json.loads(said.stdout)
    assert (facts["protocol"], facts["messages"], facts["quarantined"]) == ("open-protocol", 1470, 0)
    events = lines(out)
    assert len(events) == facts["events"] == 2289
    assert all([n for n in e if n != "commit_ts_text" and n != "start_ts_text"] == EVENTS.names for e in events)
    assert sum(e["kind"] == "row" for e in events) == 2101


def test_events_are_the_same_bytes_each_time(lab: Any, tmp_path: Path) -> None:
    """Same input, same output, byte for byte."""
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for out in (first, second):
        lab("events", CANAL, "--out", str(out))
    assert first.read_bytes() == second.read_bytes()


def test_events_names_what_it_quarantined(lab: Any, tmp_path: Path) -> None:
    """A message that cannot be decoded is counted, named by its class, and kept on request."""
    messages = list(json_lines("messages_open-protocol_small.jsonl.gz"))[:50]
    messages[3]["value"] = base64.b64encode((2**62).to_bytes(8, "big")).decode()
    source = write_lines(tmp_path / "bad.jsonl", messages)
    kept = tmp_path / "kept.parquet"
    said = lab("events", source, "--out", str(tmp_path / "e.jsonl"), "--quarantine", str(kept))
    assert "50 messages in = 49 decoded" in said.stderr
    assert "quarantined 1 x truncated-frame" in said.stderr
    assert list(kept.glob("*.parquet"))


def test_watermarks_say_how_far(lab: Any) -> None:
    """The topic's resolved_ts is the least over its partitions."""
    found = json.loads(lab("watermarks", CANAL, "--json").stdout)
    assert found["topics"][0]["resolved_ts"] == min(p["resolved_ts"] for p in found["partitions"]) == 470603993791332352
    assert "complete up to resolved_ts 470603993791332352" in lab("watermarks", CANAL).stdout


def test_transactions_equal_the_truth(lab: Any, tmp_path: Path) -> None:
    """One line a transaction; the number of rows is the one of the upstream transaction."""
    out = tmp_path / "txns.jsonl"
    lab("transactions", OPEN, "--out", str(out))
    want = {d["commit_ts"]: len(d["rows"]) for d in json_lines("truth_small.jsonl.gz") if d["kind"] == "txn"}
    assert {t["commit_ts"]: t["n_rows"] for t in lines(out)} == want


def test_dispatch_gives_target_partitions(lab: Any, tmp_path: Path) -> None:
    """`shop.orders` was recorded by column user_id over four partitions; dispatching so changes nothing."""
    out = tmp_path / "d.jsonl"
    lab("dispatch", CANAL, "--strategy", "columns", "--columns", "user_id", "--partitions", "4", "--out", str(out))
    orders = [e for e in lines(out) if e["kind"] == "row" and e["table_name"] == "orders"]
    assert len(orders) == 357
    assert all(e["target_partition"] == e["partition"] for e in orders)


def test_what_dispatch_wrote_is_told_from_a_log(lab: Any, tmp_path: Path) -> None:
    """Its table contains events that cannot be decoded; the way out is the log itself."""
    out = str(tmp_path / "moved.parquet")
    lab("dispatch", CANAL, "--strategy", "index-value", "--partitions", "3", "--out", out)
    said = lab("watermarks", out, code=2)
    assert "decoded events, not messages" in said.output and "Ask the log" in said.output


@pytest.mark.parametrize(
    ("named", "apart"),
    [
        ("columns:user_id", ("columns", "--columns", "user_id")),
        ("index-value:u_ref", ("index-value", "--index", "u_ref")),
    ],
)
def test_dispatch_takes_a_dispatcher_by_the_name_that_advice_gives_it(
    lab: Any, tmp_path: Path, named: str, apart: tuple[str, ...]
) -> None:
    """`advise` and `what_if` show `columns:user_id`; that is no other dispatcher than the one with `--columns`."""
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for how, out in zip([(named,), apart], files, strict=True):
        lab("dispatch", CANAL, "--strategy", *how, "--partitions", "3", "--out", str(out))
    assert len({e["target_partition"] for e in lines(files[0])} - {None}) == 3
    assert lines(files[0]) == lines(files[1])


def test_dispatch_without_a_dispatcher_names_some(lab: Any) -> None:
    """And the command that chooses; a reader that asks first does not know their names."""
    said = lab("dispatch", CANAL, "--partitions", "3", code=2)
    assert "table, ts, index-value" in said.output and "ticdc-lab advise" in said.output


def test_produce_takes_a_dispatcher_by_that_name(lab: Any, tmp_path: Path) -> None:
    """TiCDC's own error names the column that a table is missing."""
    said = lab("produce", CANAL, "--to", "canal-json", "--strategy", "columns:user_id", "--partitions", "3",
               "--out", str(tmp_path / "x.jsonl"), code=2)  # fmt: skip
    assert "columns: [user_id], column: user_id" in said.stderr


def test_dispatch_by_a_changefeed_file(lab: Any, tmp_path: Path) -> None:
    """The golden topic's own rules change nothing; topics are measured one by one, and what meets in
    one is reported.
    """
    rules = next(c for c in json.loads(golden("config_small.json").read_text()) if c["protocol"] == "canal-json")
    feed = Changefeed(rules_from_config(rules["dispatch_rules"]))
    topics = [replace(r, topic="{schema}.x") if "shop.orders" in r.matcher else r for r in feed.rules]
    (tmp_path / "c.toml").write_text(replace(feed, rules=tuple(topics)).to_toml())
    out, uri = tmp_path / "d.jsonl", "kafka://h/small?partition-num=4&protocol=canal-json"
    how = ("--changefeed", str(tmp_path / "c.toml"), "--sink-uri", uri, "--topics", "--out", str(out), "--json")
    said = lab("dispatch", CANAL, *how)
    found = [e for e in lines(out) if e["kind"] == "row"]
    assert {(e["table_name"] == "orders", e["target_topic"]) for e in found} == {(True, "shop.x"), (False, "small")}
    assert all(e["target_partition"] == e["partition"] for e in found)
    assert {t["target_topic"]: (t["tables"], t["rows"]) for t in json.loads(said.stdout)["topics"]}["shop.x"] == (
        1,
        357,
    )


def test_dispatch_in_raw_mode_says_what_it_joined(lab: Any, tmp_path: Path) -> None:
    """With output-raw-change-event the split updates are joined where the log shows, and the others are counted."""
    (tmp_path / "c.toml").write_text("[sink.kafka-config]\noutput-raw-change-event = true\npartition-num = 4\n")
    how = ("--changefeed", str(tmp_path / "c.toml"), "--out", str(tmp_path / "d.jsonl"), "--json")
    said = lab("dispatch", CANAL, *how)
    counts = json.loads(said.stdout)["key_updates"]
    rows = sum(e["kind"] == "row" for e in lines(tmp_path / "d.jsonl"))
    assert rows == 2101 - counts["same_key"] - counts["only_pair"] - counts["equal_rest"]
    assert counts["same_key"] > 0
    assert "of delete and insert joined to updates of keys" in said.stderr


@pytest.mark.parametrize(
    "how",
    [
        (),
        ("--strategy", "ts", "--changefeed", "c.toml"),
        ("--strategy", "ts"),
        ("--strategy", "ts", "--partitions", "4", "--topics"),
    ],
)
def test_dispatch_needs_one_of_two_ways(lab: Any, tmp_path: Path, how: tuple[str, ...]) -> None:
    """Neither or both ways, no partition count and topics without a file are refused before anything is read."""
    lab("dispatch", CANAL, *how, "--out", str(tmp_path / "d.jsonl"), code=2)
    assert not (tmp_path / "d.jsonl").exists()


def test_advise_writes_a_changefeed_file(lab: Any, tmp_path: Path) -> None:
    """What it recommends is in the file, and can be dispatched by."""
    out, again = tmp_path / "d.toml", tmp_path / "d.jsonl"
    facts = json.loads(lab("advise", CANAL, "--partitions", "1,4", "--out", str(out), "--json").stdout)
    assert (facts["partitions"], facts["partitions_now"]) == (4, 4)
    assert facts["answer"].startswith("Change 5 of 7 tables: ") and "shop.parted from ts to table" in facts["answer"]
    assert " This preserves the order of the table's changes. " in facts["answer"]
    [parted] = [t for t in facts["plan"] if t["table"] == "shop.parted"]
    assert (parted["now"], parted["take"]) == ("ts", "table") and parted["because"].startswith("ts breaks the order")
    assert facts["broken"]["row_order"][0] == 0
    assert {t["table"] for t in facts["tables"]} >= {"shop.orders", "shop.users"}
    lab("dispatch", CANAL, "--changefeed", str(out), "--out", str(again))
    assert {e["target_partition"] for e in lines(again)} - {None} <= set(range(facts["partitions"]))
    lab("advise", CANAL, "--partitions", "1,many", code=2)
    short, whole = (
        lab("advise", CANAL, "--tables", "shop.parted,shop.none", *more).stdout for more in ([], ["--reasons"])
    )
    assert "shop.orders" not in short and "The log has no row change of shop.none." in short
    reason = "  tidb-rowid cannot be set: "
    assert reason not in short and reason in whole and "nopk (416 rows" not in whole


def test_dispatch_names_rows_that_cannot_be_dispatched(lab: Any, tmp_path: Path) -> None:
    """A column that a table does not have is TiCDC's own error, counted, with a null target; one that none has is
    refused.
    """
    out, given = tmp_path / "d.jsonl", ("dispatch", CANAL, "--partitions", "4", "--out", str(tmp_path / "d.jsonl"))
    said = lab(*given, "--strategy", "columns:nope", code=2)
    assert "No row change of the log can be dispatched by the columns nope: [CDC:ErrDispatcherFailed]" in said.stderr
    assert not out.exists()
    told = json.loads(lab(*given, "--strategy", "columns", "--columns", "user_id", "--json").stdout)
    lost = sum(e["rows"] for e in told["errors"])
    assert all("columns not found" in e["dispatch_error"] for e in told["errors"])
    assert lost == sum(e["target_partition"] is None and e["kind"] == "row" for e in lines(out)) == 2101 - 357


def test_unknown_strategy_is_refused(lab: Any, tmp_path: Path) -> None:
    """A strategy that does not exist is an error with those that do."""
    out = str(tmp_path / "d.jsonl")
    said = lab("dispatch", CANAL, "--strategy", "indx-value", "--partitions", "4", "--out", out, code=2)
    assert "index-value" in said.stderr


def test_audit_explains_the_golden_log(lab: Any) -> None:
    """The clean log gives findings only for the table dispatched by ts, and reports it; exit code 1."""
    found = json.loads(lab("audit", OPEN, "--json", "--messages-of", "1", code=1).stdout)
    moving = {"shop.parted", "shop.users", "Fin_Ops.Customers"}
    assert {f["table"] for f in found["findings"]} <= moving
    assert "shop.parted" in {f["table"] for f in found["findings"]}
    assert all("because" in f["message"] for f in found["findings"])
    assert sum(found["counts"].values()) == len(found["findings"])
    named = {(m["partition"], m["offset"]) for m in found["messages"] if m["named"]}
    assert named == {(e["partition"], e["offset"]) for e in found["findings"][0]["evidence"]}


def test_what_cannot_be_seen_in_a_value_is_an_escape(lab: Any, tmp_path: Path) -> None:
    """A NUL byte and a line's end, of a row that a finding is about; JSON has them as they are."""
    messages = [m for m in lines(Path(CANAL)) if b'"parted"' in base64.b64decode(m["value"])][:200]
    for m in messages:
        value = json.loads(base64.b64decode(m["value"]))
        for row in value["data"] or ():
            row["v"] = "\0\n"
        m["value"] = base64.b64encode(json.dumps(value).encode()).decode()
    log = write_lines(tmp_path / "log.jsonl", messages)
    asked = ("audit", log, "--messages-of", "2")
    said, told = lab(*asked, code=1).stdout, json.loads(lab(*asked, "--json", code=1).stdout)
    assert "v=\\x00\\x0a" in said and "\x00" not in said
    assert any("v=\x00\n" in m["what"] for m in told["messages"])


def test_transactions_names_a_change_that_is_lost_without_a_missing_offset(lab: Any, tmp_path: Path) -> None:
    """The message of a row is cut out and the offsets behind it closed up: the broken chain is the first sentence."""
    messages = lines(Path(CANAL))
    changes = [m for m in messages if b'"orders"' in (v := base64.b64decode(m["value"])) and b'"UPDATE"' in v]
    lost = next(m for m in changes if b'"seq":"489"' in base64.b64decode(m["value"]))
    kept = [m for m in messages if m is not lost]
    for m in kept:
        m["offset"] -= (m["partition"], m["offset"] > lost["offset"]) == (lost["partition"], True)
    said = lab("transactions", write_lines(tmp_path / "log.jsonl", kept)).stdout
    assert said.startswith(
        "The audit found 1 broken chain of row images: either a change is lost, and its transaction is torn, or "
        "an image is wrong: shop.orders "
    )
    assert " None of 511 transactions is pending; " in said and "known to be torn" not in said


def test_an_image_that_does_not_match_is_shown_with_both_values(lab: Any, tmp_path: Path) -> None:
    """The finding names the column; its messages show the image before each update."""
    messages = lines(Path(CANAL))
    [wrong] = [m for m in messages if (m["partition"], m["offset"]) == (3, 16)]
    value = json.loads(base64.b64decode(wrong["value"]))
    assert (value["type"], value["old"][0]["amount"]) == ("UPDATE", "56106.43")
    value["old"][0]["amount"] = "123.45"
    wrong["value"] = base64.b64encode(json.dumps(value).encode()).decode()
    said = lab("audit", write_lines(tmp_path / "log.jsonl", messages), "--messages-of", "1", code=1).stdout
    assert "(amount: it left 56106.43, the image has 123.45); a change between them is lost" in said
    assert "before: amount=123.45, flags=1 (paid); after: user_id=42, seq=1311, amount=56106.43, flags=0" in said


def test_watermarks_begins_with_each_that_falls(lab: Any, tmp_path: Path) -> None:
    """Where, from what and to what; then how far the log is complete."""
    messages = lines(Path(CANAL))
    marks = [m for m in messages if b'"TIDB_WATERMARK"' in base64.b64decode(m["value"]) and m["partition"] == 2]
    marks[15]["value"] = marks[8]["value"]
    high, low = (json.loads(base64.b64decode(marks[i]["value"]))["_tidb"]["watermarkTs"] for i in (14, 8))
    said = lab("watermarks", write_lines(tmp_path / "log.jsonl", messages)).stdout
    assert said.startswith(f"The watermark of small partition 2 falls at offset {marks[15]['offset']}, by ")
    assert f" s: from {high} (" in said and f" to {low} (" in said and ". It is complete up to " in said


def test_an_audit_ends_with_how_complete_the_log_is_and_its_settings(lab: Any) -> None:
    """The whole verdict is one block, as in a report and in the workbench."""
    complete, settings = lab("audit", CANAL, code=1).stdout.splitlines()[-2:]
    assert complete == "It is complete up to 2026-11-20 21:56:08.308 UTC (resolved_ts 470603993791332352)."
    assert settings.startswith("Known settings of the changefeed: ") and "enable-old-value = true" in settings
    assert settings.endswith(f" and 1 more; all: ticdc-lab settings {CANAL}")


def test_a_finding_that_is_not_there_has_no_messages(lab: Any) -> None:
    """The option is named."""
    assert "--messages-of" in lab("audit", OPEN, "--messages-of", "99999", code=2).stderr


def test_audit_is_clean_where_nothing_moves(lab: Any, tmp_path: Path) -> None:
    """Without the tables that a rule moves nothing is found, exit code 0, except for the offsets they had."""
    tables = ("parted", "users", "Customers")
    messages = [
        m
        for m in json_lines("messages_canal-json-tidb_small.jsonl.gz")
        if json.loads(base64.b64decode(m["value"]))["table"] not in tables
    ]
    holes = write_lines(tmp_path / "holes.jsonl", messages)
    found = json.loads(lab("audit", holes, "--json", code=1).stdout)["findings"]
    assert {(f["guarantee"], f["severity"]) for f in found} == {("offsets_are_contiguous", "warning")}
    following: Counter[int] = Counter()
    for m in messages:
        m["offset"] = following[m["partition"]]
        following[m["partition"]] += 1
    still = write_lines(tmp_path / "still.jsonl", messages)
    assert json.loads(lab("audit", still, "--json").stdout)["findings"] == []


def test_a_folder_of_the_storage_sink_has_streams(lab: Any, tmp_path: Path) -> None:
    """No sentence, finding or head of a table calls them partitions; findings name a line of a file."""
    folder = unpack(tmp_path) / "small_canal-json"
    longest = max(folder.glob("Fin_Ops/Ledger/**/CDC*.json"), key=lambda f: f.stat().st_size)
    rows = longest.read_text(encoding="utf-8").splitlines(keepends=True)
    longest.write_text("".join(rows[:1] + rows[6:]), encoding="utf-8")
    runs = (("audit",), ("audit", "--messages-of", "1"), ("watermarks",), ("survey",))
    said = {run: lab(run[0], str(folder), *run[1:], code=None).stdout for run in runs}
    assert {run: text for run, text in said.items() if re.search(r"\bpartitions?\b", text)} == {}
    in_lines = {run for run, text in said.items() if re.search(r"\.json line \d", text)}
    assert in_lines == {*runs[:2]}
    assert all(re.search(r"\bstreams?\b", said[run]) for run in runs[2:])


def test_json_lists_the_pending_transactions(lab: Any, tmp_path: Path) -> None:
    """As many as it counts; the text shows the first, and how many more JSON has."""
    own = [m for m in json_lines("messages_canal-json-tidb_small.jsonl.gz") if m["partition"] != 2 or m["offset"] < 150]
    log = write_lines(tmp_path / "cut.jsonl", own)
    told = json.loads(lab("transactions", log, "--json").stdout)
    listed = told["pending_transactions"]
    assert len(listed) == min(told["pending"], 300) > 20 and all(row["missing"] == [2] for row in listed)
    assert f"and {len(listed) - 20} more pending; --json shows them" in lab("transactions", log).stdout


def test_json_names_the_transactions_beside_a_gap(lab: Any, tmp_path: Path) -> None:
    """As the first sentence does; without a gap there is no such list."""
    messages = [*json_lines("messages_open-protocol_small.jsonl.gz")]
    n = next(i for i, m in enumerate(messages) if m["kind"] == "row" and m["partition"] == 1 and m["offset"] > 40)
    log = write_lines(tmp_path / "gap.jsonl", messages[:n] + messages[n + 1 :])
    told = json.loads(lab("transactions", log, "--json").stdout)
    suspects = {str(row["commit_ts"]) for row in told["suspects"]}
    assert suspects and f"{len(suspects)} transactions may be torn" in told["answer"]
    assert {row["first_missing"] for row in told["suspects"]} == {messages[n]["offset"]}


@pytest.mark.parametrize("command", ["watermarks", "transactions"])
def test_a_log_without_commit_ts_is_refused(lab: Any, command: str) -> None:
    """canal-json without the extension carries no commit_ts: the answer is refused with the reason."""
    assert "enable-tidb-extension" in lab(command, PLAIN, code=2).stderr


def test_audit_of_a_log_without_commit_ts_says_what_it_cannot_check(lab: Any) -> None:
    """What cannot be proved is listed with its reason instead of passing silently."""
    found = json.loads(lab("audit", PLAIN, "--json", code=None).stdout)
    assert "watermarks_are_monotone" in found["not_checked"]
    assert not [limit for limit in found["limits"] if "not checked" in limit], "said once"


def test_a_missing_file_is_an_error_with_a_hint(lab: Any) -> None:
    """Exit code 2, what was expected, and what to do."""
    said = lab("audit", "no/such/file.jsonl", code=2)
    assert "does not exist" in said.stderr
    assert "Hint:" in said.stderr


@pytest.mark.parametrize("command", ["events", "transactions"])
def test_a_relative_out_is_a_file_in_the_working_directory(
    lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """As in the README."""
    monkeypatch.chdir(tmp_path)
    lab(command, CANAL, "--out", "out.jsonl")
    assert lines(tmp_path / "out.jsonl")


@pytest.mark.parametrize("out", ["log.jsonl", ".", "../log.jsonl/.."])
def test_the_recording_is_never_written_over(
    lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    """Neither by --out nor by --quarantine, no matter what way its place is written."""
    monkeypatch.chdir(tmp_path)
    before = gzip.decompress(Path(CANAL).read_bytes())
    (tmp_path / "log.jsonl").write_bytes(before)
    for options in (["--out", out], ["--out", "x.jsonl", "--quarantine", out]):
        said = lab("events", str(tmp_path / "log.jsonl"), *options, code=2)
        assert "would destroy the recording" in said.output
    assert (tmp_path / "log.jsonl").read_bytes() == before


def watermark(partition: int, offset: int, ts: int) -> dict[str, Any]:
    """A canal-json watermark message."""
    value = {"type": "TIDB_WATERMARK", "isDdl": False, "database": "", "table": "", "_tidb": {"watermarkTs": ts}}
    text = base64.b64encode(json.dumps(value).encode()).decode()
    return {"topic": "t", "partition": partition, "offset": offset, "key": None, "value": text}


def test_watermarks_name_regressions_and_who_held_the_topic_back(lab: Any, tmp_path: Path) -> None:
    """Partition 1 states nothing for a while; partition 0 falls back once."""
    ts = [(1_700_000_000_000 + 1000 * i) << 18 for i in range(5)]
    stated = {0: [ts[0], ts[1], ts[2], ts[1], ts[3]], 1: [ts[0], ts[3]]}
    marks = [(p, offset, mark) for p, own in stated.items() for offset, mark in enumerate(own)]
    log = write_lines(tmp_path / "log.jsonl", [watermark(*mark) for mark in marks])
    said = lab("watermarks", log).output
    assert "Partition 1 of t held it back for 2 of 4 steps" in said and "2.000 s behind" in said
    header, first, second = [line.split() for line in said.splitlines() if line.startswith(("topic ", "t "))]
    header = [word for word in header if word != "2023-11-14"]  # of the column UTC, which has one word more above it
    regressions = header.index("n_regressions")
    assert (first[regressions], second[regressions]) == ("1", "0")


def test_whatever_fails_is_not_taken_for_findings(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 1 shows that an audit found something; an unforeseen error is a 2."""

    def broken(*_: object, **__: object) -> None:
        raise ValueError("no space left\nand more")

    monkeypatch.setattr(sys.modules["ticdc_lab.sources.load"], "load", broken)
    said = lab("audit", CANAL, code=2)
    assert "ticdc-lab: no space left" in said.output and "--debug" in said.output


@pytest.mark.parametrize("command", ["audit", "watermarks", "transactions"])
def test_a_log_of_which_nothing_could_be_decoded_is_not_clean(lab: Any, command: str) -> None:
    """Under a wrong protocol no check finds anything, which proves nothing."""
    said = lab(command, OPEN, "--protocol", "canal-json", code=2)
    assert "none of 1470 messages could be decoded as canal-json" in said.output
    assert f"ticdc-lab events {OPEN} --protocol canal-json --out" in said.output, "the command of the hint is whole"
    assert "--protocol auto" not in said.output, "it was named"


def test_what_lies_in_quarantine_qualifies_every_answer(lab: Any, tmp_path: Path) -> None:
    """A transaction may have lost a row with a damaged message, so none is proved whole without a word of it."""
    messages = lines(Path(CANAL))
    for m in messages[300:305]:
        m["value"] = base64.b64encode(b'{"cut').decode()
    log = write_lines(tmp_path / "log.jsonl", messages)
    assert "pending (data in 5 unread messages is unknown); " in lab("transactions", log).stdout
    facts = json.loads(lab("audit", log, "--json", code=None).stdout)
    assert "5 messages could not be read" in facts["limits"][0]


def test_text_that_is_no_capture_says_what_was_expected(lab: Any, tmp_path: Path) -> None:
    """Not that none of 0 messages is of a protocol."""
    path = tmp_path / "notes.jsonl"
    path.write_text("these are\nmy notes\n")
    said = lab("audit", str(path), code=2).output
    assert "none of its first records is a message. Line 1: " in said and "a line of 9 bytes, byte 0" in said


def test_an_option_that_nothing_takes_is_refused(lab: Any, tmp_path: Path) -> None:
    """A setting that would do nothing is an error, for a file and for a storage folder."""
    said = lab("watermarks", CANAL, "--option", "kafka.security.protocol=SSL", code=2).stderr
    assert "takes none of the options kafka.security.protocol" in said
    assert lab("fsck", str(tmp_path), "--option", "startingOffsets=earliest", code=2).exit_code == 2


EXPAND = ("expand", OPEN, "--after", "9", "--strategy", "index-value", "--stop-delay-ms", "5,60", "--restart-ms", "40")


def test_expand_says_what_it_costs_and_finds_nothing_with_the_procedure(lab: Any, tmp_path: Path) -> None:
    """Plan, cost and findings of each part; the new log's events hold the Admin events."""
    out = tmp_path / "expanded.jsonl.gz"
    facts = json.loads(lab(*EXPAND, "--out", str(out), "--json").stdout)
    assert (facts["plan"]["before"], facts["plan"]["after"]) == (4, 9)
    assert facts["findings"] == {"before": [], "after": [], "whole": [], "consumer": []}
    moved = r"From 4 to 9 partitions, "
    moved += r"[\d,]+ of [\d,]+ keys move \(\d+ % of the rows\)"
    assert re.search(moved, facts["answer"])
    assert facts["answer"].endswith(" s and nothing newly breaks.") and facts["newly_broken"]["design"] == {}
    added = facts["newly_broken"]["just-add"]
    assert added["resolved_events_on_all_partitions"] == ["the log"] and added["rows_stay_in_one_partition"]
    assert " TiCDC just adds partitions, which newly breaks: " in facts["answer"]
    assert facts["cost"]["resent_rows"] == facts["cost"]["dropped_rows"]
    events = lines(out)
    assert sum(e["kind"] == "admin" for e in events) == 9
    assert sum(e["kind"] == "row" for e in events) == 2101 + facts["cost"]["resent_rows"]


def test_expand_finds_what_partitions_break_that_are_just_added(lab: Any) -> None:
    """Exit code 1, in words."""
    said = lab(*EXPAND, "--procedure", "just-add", "--reasons", code=1).stdout
    assert "changes_are_applied_in_order" in said and "rows_stay_in_one_partition" in said


def test_expand_without_a_number_compares_some(lab: Any) -> None:
    """The first sentence is about twice as many; what the new log would need is refused without it."""
    said = lab("expand", OPEN).stdout
    assert said.startswith(
        "From 4 to 8 partitions, 238 of 646 keys move (27 % of the rows), and the fullest partition takes 26 % of "
        "the rows instead of 32 % (2.10 times the mean instead of 1.28). TiCDC just adds partitions, which newly "
    )
    assert (
        said.splitlines()[0].endswith(" pauses 2.9 s and nothing newly breaks.")
        and "--after 8 --procedure just-add" in said
    )
    assert "--strategy needs --after" in lab("expand", OPEN, "--strategy", "ts", code=2).stderr
    said = lab("expand", OPEN, "--restart-ms", "1000", "--reasons", code=2).stderr
    assert "--restart-ms, --reasons need --after" in said


def test_expand_refuses_fewer_partitions_that_are_just_added(lab: Any) -> None:
    """Kafka removes none: exit code 2."""
    said = lab("expand", OPEN, "--after", "2", "--procedure", "just-add", code=2)
    assert "Kafka cannot remove partitions" in said.stderr


def test_why_names_each_stall_with_what_the_log_cannot_tell(lab: Any, tmp_path: Path) -> None:
    """One partition's later watermarks are missing: the others continued."""
    marks = [m for m in json_lines(OPEN.rsplit("/", 1)[1]) if m["kind"] == "checkpoint" and m["partition"] == 1]
    gone = {m["offset"] for m in marks[len(marks) // 2 :]}
    cut = [m for m in json_lines(OPEN.rsplit("/", 1)[1]) if m["partition"] != 1 or m["offset"] not in gone]
    said = lab("why", write_lines(tmp_path / "cut.jsonl", cut), "--stall", "0.02").stdout
    assert "Topic small, partition 1: stalled at " in said and ", to the end of the log, its newest row: " in said
    assert "  partition-silent: the other partitions received " in said
    assert said.count("partition-silent: the log cannot show whether the ") == 1
    told = json.loads(lab("why", OPEN, "--json").stdout)
    assert (told["stalls"], told["stall_s"]) == ([], 1.0) and 0 < told["usual_step_s"] < told["longest_step_s"] < 1
    usual = lab("why", "data/messages_open-protocol_stalls.jsonl.gz").stdout
    stuck = "Partition 2 is stuck at the end of the log, for 8.980 s, cause partition-silent: "
    assert usual.startswith(stuck) and "Watermarks of this log stalled 5 times for more than 1.5 s." in usual
    assert "They usually step by 0.600 s." in usual
    assert "Partition 2 of simulated is missing the topic's last 16 watermarks" in usual
    assert " for more than 1.5 s. Rows came again in 1 shorter step, as after a restart." in usual
    assert "1.000 s\n    restart: 23 rows (the first: partition 0 offset 410) came again\n" in usual
    assert (
        "6.000 s\n    restart: 23 rows (the first: partition 0 offset 410) came again in the step before it\n" in usual
    )
    ended = lab("why", "data/messages_open-protocol_stalls.jsonl.gz", "--stall", "0.9").stdout
    assert "silence: the log ends with it; the newest row, to which the time is measured, came before it" in ended


def test_each_command_says_in_one_short_sentence_what_it_is_for() -> None:
    """The lists of commands cut no sentence on a terminal of 80 columns, and every option has words."""

    def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
        for name, command in group.commands.items():
            yield f"{path} {name}", command
            if isinstance(command, click.Group):
                yield from commands(command, f"{path} {name}")

    assert sorted(name for names in COMMANDS.values() for name in names) == sorted(main.commands)
    every = dict(commands(main, "ticdc-lab"))
    for path, command in [("ticdc-lab", main), *every.items()]:
        shown = CliRunner().invoke(main, [*path.split()[1:], "--help"], terminal_width=80).output
        assert "..." not in shown.partition("Options:")[2] or not isinstance(command, click.Group), shown
        options = [p for p in command.params if isinstance(p, click.Option)]
        assert [f"{path} {o.opts[0]}" for o in options if not o.help] == []


def test_a_moment_is_a_tso_or_a_time() -> None:
    """Where a TSO is entered a time in UTC is taken too; what is neither is refused in a sentence."""
    kind = Moment()
    assert kind.convert("2026-06-01 12:30:00", None, None) == kind.convert("466699419648000000", None, None)
    with pytest.raises(click.BadParameter, match=r"is not a time\. Write it as `2026-06-01"):
        kind.convert("soon", None, None)


def test_timestamps_survive_a_reader_that_rounds(lab: Any, tmp_path: Path) -> None:
    """Jq and JavaScript hold numbers as doubles: beside each larger one stands its text, in --json and JSON Lines."""
    finding = json.loads(lab("audit", CANAL, "--json", code=1).stdout)["findings"][0]
    assert finding["commit_ts_text"] == str(finding["commit_ts"]) and float(finding["commit_ts"]) > 2**53
    assert all(e["commit_ts_text"] == str(e["commit_ts"]) for e in finding["evidence"])
    assert "offset_text" not in finding
    out = tmp_path / "events.jsonl"
    lab("events", CANAL, "--out", str(out))
    assert all(e["commit_ts_text"] == str(e["commit_ts"]) for e in lines(out) if e["commit_ts"] is not None)


def _all_commands(group: click.Command, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(group, click.Group):
        for name, command in group.commands.items():
            yield from _all_commands(command, *path, name)
    else:
        yield path, group


def test_each_help_has_an_example_that_its_command_takes() -> None:
    """And names the options that many commands share, which `options` explains."""
    found = {" ".join(path): command for path, command in _all_commands(main)}
    refused: list[str] = []
    assert EXAMPLES.keys() == found.keys()
    for name, command in found.items():
        assert EXAMPLES[name].startswith(name)
        try:  # with what it requires
            command.make_context(name, shlex.split(EXAMPLES[name].removeprefix(name)))
        except click.BadParameter as error:
            refused.append(error.format_message())
        said = " ".join(command.get_help(click.Context(command, info_name=f"ticdc-lab {name}")).split())
        assert EXAMPLES[name] in said and said.count("Example") == 1
        assert "keeps secrets off the command line" not in said
    assert [message for message in refused if "does not exist" not in message] == []
    assert "keeps secrets off the command line" in " ".join(CliRunner().invoke(main, ["options"]).output.split())


@pytest.mark.parametrize(
    ("args", "begun", "offered"),
    [
        (["audit"], "topic.js", ["topic.js"]),
        (["audit", CANAL, "--protocol"], "av", ["avro"]),
        (["produce", CANAL, "--to"], "op", ["open-protocol"]),
        (["dispatch", CANAL, "--strategy"], "ta", ["table"]),
        (["table", CANAL, "--table"], "shop.or", ["shop.orders"]),
        (["audit", CANAL, "--tables"], "shop.users,shop.o", ["shop.users,shop.orders"]),
        (["audit", "/nowhere", "--tables"], "s", []),
    ],
)
def test_the_shell_offers_what_can_stand_there(args: list[str], begun: str, offered: list[str]) -> None:
    """Protocols, dispatchers, and the tables of the log that is named."""
    found = ShellComplete(main, {}, "ticdc-lab", "_TICDC_LAB_COMPLETE").get_completions(args, begun)
    assert [item.value for item in found] == offered
    assert [item.type for item in found] == ["plain" if len(args) > 1 else "file"] * len(offered)


def test_the_workbench_is_a_notebook_of_one_cell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is opened in JupyterLab, a second time as it is; another notebook is left alone."""
    ran: list[list[str]] = []
    monkeypatch.setattr("ticdc_lab.cli.start_commands.subprocess.call", lambda command: ran.append(command) or 0)
    out = tmp_path / "w.ipynb"
    for _ in range(2):
        found = CliRunner().invoke(main, ["workbench", CANAL, "--out", str(out), "--no-browser"])
        assert found.exit_code == 0, found.output
    address = "--LabApp.default_url=/lab/tree/w.ipynb"
    opened = ["-m", "jupyterlab", str(out), address, "--no-browser"]
    assert [[word for word in command[1:] if word != "--allow-root"] for command in ran] == [opened] * 2
    [cell] = json.loads(out.read_text())["cells"]
    assert "".join(cell["source"]).endswith(f"import ticdc_lab\n\nticdc_lab.workbench({str(Path(CANAL).resolve())!r})")
    other = CliRunner().invoke(main, ["workbench", "--out", str(out)])
    assert other.exit_code == 2 and "is another notebook" in other.output and len(ran) == 2
    gone = CliRunner().invoke(main, ["workbench", str(tmp_path / "none.jsonl")])
    assert gone.exit_code == 2 and "does not exist" in gone.output


@pytest.mark.parametrize(
    "command",
    [
        ["audit"], ["why"], ["watermarks"], ["transactions"], ["advise"], ["expand"], ["settings"], ["survey"],
        ["table", "--table", "shop.orders"], ["consumer"],
        ["dispatch", "--strategy", "index-value", "--partitions", "6"],
    ],
    ids=lambda command: command[0],
)  # fmt: skip
def test_the_answer_is_the_first_line_of_a_terminal(lab: Any, command: list[str]) -> None:
    """What was read, by which engine, and what the log cannot determine is below it."""
    name, *options = command
    said = lab(name, CANAL, *options, code=None)
    first = next(line for line in said.output.splitlines() if line)
    assert first == said.stdout.splitlines()[0] and "messages in =" not in said.stdout
    if name != "survey":  # it reads the first messages only
        assert f"{CANAL} (canal-json): 2241 messages in = 2241 decoded" in said.stderr


def test_what_was_read_stands_before_an_error(lab: Any) -> None:
    """Notes that wait for an answer are not lost with it, and the error is the last that a terminal shows."""
    said = lab("table", CANAL, "--table", "shop.nope", code=2).stderr
    assert said.index("2241 messages in =") < said.index("has no table shop.nope")
