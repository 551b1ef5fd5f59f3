"""The dispatchers of the changefeed's file explain moves of few rows, by every strategy and under every name."""

from __future__ import annotations

import base64
import json
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import ticdc_lab
from ticdc_lab import answers
from ticdc_lab.answers import surveyed
from ticdc_lab.answers.audit import of_findings
from ticdc_lab.audit.contradicted import with_rules_noted
from ticdc_lab.cli import main
from ticdc_lab.codecs.decode import decoder
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.events.schema import DECODED
from ticdc_lab.settings.file import parse_file
from ticdc_lab.sources.capture import read_whole
from ticdc_lab.sources.survey import survey
from ticdc_lab.watch.state import Watched, WatchState, absorbed, audited_so_far

FORM = arrow_schema(DECODED)
TS, N = 470775811997433856, 3
MOVES = "rows_stay_in_one_partition"
DDL = "CREATE TABLE `{}` (`id` INT PRIMARY KEY, `i` INT, `j` VARCHAR(20), UNIQUE KEY `uk` (`i`, `j`))"
BY = {"t": ("st", ["id", "i"]), "u": ("su", ["i", "j"]), "v": ("sv", None), "r": ("uporigin", ["id", "j"])}
"""Name upstream and columns of each table; None: by ts."""

RULES = """
[sink]
dispatchers = [
  {matcher = ['s.t'], partition = 'columns', columns = ['I', 'id']},
  {matcher = ['s.u'], partition = 'index-value', index = 'uk'},
  {matcher = ['s.v'], partition = 'ts'},
  {matcher = ['up.origin'], partition = 'columns', columns = ['id', 'j'], target-schema = 's', target-table = 'r'},
]
"""
WRONG = "[sink]\ndispatchers = [{matcher = ['s.*'], partition = 'columns', columns = ['id', 'i', 'j']}]"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four tables with four rows each, which are updated once."""
    ends, found, ts = Counter[int](), list[str](), TS

    def put(partitions: Any, message: dict[str, Any]) -> None:
        value = base64.b64encode(json.dumps(message).encode()).decode()
        for p in partitions:
            found.append(json.dumps({"topic": "c", "partition": p, "offset": ends[p], "key": None, "value": value}))
            ends[p] += 1

    def of(table: str, kind: str, **more: Any) -> dict[str, Any]:
        types = {"mysqlType": {"id": "int", "i": "int", "j": "varchar"}, "sqlType": {"id": 4, "i": 4, "j": 12}}
        return {"id": 0, "database": "s", "table": table, "pkNames": ["id"], "isDdl": False, "type": kind, "es": 1,
                "ts": 1, "sql": "", **types, "data": None, "old": None, "_tidb": {"commitTs": ts}, **more}  # fmt: skip

    for table in BY:
        ts += 1
        put(range(N), of(table, "CREATE", isDdl=True, sql=DDL.format(table)))
    for table, (name, columns) in BY.items():
        for k in range(8):
            ts += (1 << 18) + k
            rows = [{"id": str(k % 4), "i": str(37 * k + i), "j": f"v{3 * k + i}"} for i in (0, 1)]
            old = {"old": [rows[1] | {"i": str(37 * (k - 4)), "j": f"v{3 * (k - 4)}"}]} if k > 3 else {}
            h = zlib.crc32(name.encode()) if columns else ts
            for column in columns or ():
                h ^= zlib.crc32((column + rows[0][column]).encode())
            put([h % N], of(table, "UPDATE" if k > 3 else "INSERT", data=[rows[0]], **old))
    put(range(N), of("", "TIDB_WATERMARK", database="", _tidb={"watermarkTs": ts + 1}))
    path: Path = tmp_path_factory.mktemp("given") / "small.jsonl"
    path.write_text("\n".join(found) + "\n")
    return str(path)


def test_the_rules_of_the_file_explain_moves_of_few_rows(spark: SparkSession, small: str) -> None:
    """Several columns in any case, an index by name, ts, and a table that is routed: none is an error."""
    log = ticdc_lab.open(small, spark=spark, changefeed=parse_file(RULES, name="c.toml").settings)
    found = of_findings(log.change_log)["findings"]
    known = log.settings().frames["settings"].set_index("setting").loc["sink.dispatchers"]
    rules = log.rules().frames["tables"].set_index("table_name")
    assert {*found["guarantee"]} == {MOVES} and {*found["severity"]} == {"warning"}
    assert {*found["table"]} == {f"s.{name}" for name in BY}
    assert all("as the changefeed's file says (all 8 rows lie in" in m for m in found["message"])
    assert known["how surely"] == "verified"
    assert "all 32 rows of 4 tables lie where it puts them among 3" in known["evidence"]
    assert rules["rule"].to_dict() == {"r": "columns:id,j", "t": "columns:id,i", "u": "columns:i,j", "v": "ts"}
    assert not rules["by_chance"].any()


def test_no_more_is_said_than_was_tried(spark: SparkSession, small: str) -> None:
    """Rows too few to show are a warning; what nothing explains names all that was tried, the file's rule as well."""
    bare = of_findings(ticdc_lab.load(spark, small))["findings"]
    of_t, of_r = (bare[bare["table"] == name] for name in ("s.t", "s.r"))
    assert {*of_t["severity"]} == {"warning"}
    assert all("columns id and i" in m and "rows may lie there by chance" in m for m in of_t["message"])
    given = parse_file(WRONG, name="c.toml").settings
    wrong = of_findings(ticdc_lab.load(spark, small, changefeed=given))["findings"]
    tried = "(tried: the changefeed's columns:id,i,j, table, index-value, ts, each column, 4 combinations of columns"
    tried += ", columns under another name)"
    routed = wrong[(wrong["table"] == "s.r") & (wrong["guarantee"] == MOVES)]
    assert {*of_r["severity"]} == {*routed["severity"]} == {"error"}
    assert all(m.endswith(tried) for m in routed["message"])
    assert all(m.endswith(tried.replace("the changefeed's columns:id,i,j, ", "")) for m in of_r["message"])
    assert "`columns:id,i,j` of its rule" in wrong[wrong["guarantee"] == "settings_match_the_log"]["message"].iloc[0]


def test_a_watch_tries_the_rules_of_the_file(small: str) -> None:
    """As an audit does."""
    with Path(small).open("rb") as file:
        messages = pa.Table.from_batches([m for m, _ in read_whole(file, small)])
    events = pa.Table.from_batches(decoder("canal-json", images=False)(iter(messages.to_batches())), FORM)
    watched = Watched("canal-json", settings=parse_file(RULES, name="c.toml").settings)
    found = audited_so_far(absorbed(WatchState(), events, watched)[0], watched).findings.to_pylist()
    assert {(f["guarantee"], f["severity"]) for f in found} == {(MOVES, "warning")}
    assert all("as the changefeed's file says" in f["message"] for f in found)


def test_a_rule_that_too_few_rows_show_is_a_guess() -> None:
    """It is neither the rule of the table nor one that was not found."""
    found = pd.DataFrame([
        {"topic": "c", "schema_name": "s", "table_name": "t", "rule": "columns:id,i", "n_rows": 8, "n_explained": 8,
         "partitions": 3, "n_unknown": 0, "by_chance": True, "tried": "table"},
    ])  # fmt: skip
    assert answers.rules(found).finding == "Of 1 table: of s.t too few rows show the rule."
    found["by_chance"] = False
    assert answers.rules(found).finding == "Of 1 table: 1 by columns:id,i explain every row."
    assert not answers.rules(found).limits
    (limit,) = answers.rules(found.assign(n_unknown=3)).limits
    assert limit == "columns:id,i is not compared with 3 rows of s.t: the log does not show what is hashed."


def test_rules_that_are_not_what_they_seem_are_said_with_every_answer(spark: SparkSession, small: str) -> None:
    """Also where the answer reads no partition; once, no matter what else shows them."""
    text = "[sink]\ndispatchers = [{matcher = ['s.t'], partition = 'indexvalue'}, {matcher = ['s.t', 'x.*']}]"
    settings = parse_file(text, name="c.toml").settings
    log = ticdc_lab.open(small, spark=spark, changefeed=settings)
    unknown, behind = (limit for limit in log.limits if "dispatcher" in limit or "rule" in limit)
    assert unknown.startswith("TiCDC knows no dispatcher 'indexvalue' (the nearest is index-value)")
    assert behind.startswith("The rule for s.t x.* is never reached")
    notes = of_findings(log.change_log)["findings"].query("severity == 'info'")["message"].to_list()
    assert notes == [unknown, behind]
    asked = Path(small).parent / "c.toml"
    asked.write_text(text)
    for command in ("watermarks", small), ("table", small, "--table", "s.t"):
        told = CliRunner().invoke(main, [*command, "--changefeed", str(asked)], obj=spark).output
        assert told.count(unknown) == told.count(behind) == 1


def test_a_rule_that_ticdc_refuses_is_said(spark: SparkSession, small: str) -> None:
    """No answer fails for it that does not need it."""
    text = "[sink]\ndispatchers = [{matcher = ['s.t'], partition = 'ts', dispatcher = 'ts'}]"
    log = ticdc_lab.load(spark, small, changefeed=parse_file(text, name="c.toml").settings)
    noted = with_rules_noted(log)
    assert any("sets sink.dispatchers, but TiCDC refuses it: " in limit for limit in noted.limits)
    said = [m for m in of_findings(noted)["findings"]["message"] if "refuses" in m]
    assert len(said) == 1  # once, though what opened the log knew it as well
    (limit,) = (limit for limit in surveyed(survey(spark, small, changefeed=log.settings)).limits if "refuses" in limit)
    assert limit.startswith("The file c.toml sets sink.dispatchers, but TiCDC refuses it: ")


def test_a_survey_names_rules_that_have_no_effect(spark: SparkSession, small: str, tmp_path: Path) -> None:
    """Of a log that a look reads in full; of another one that this is not known, but the unknown dispatcher."""
    text = "[sink]\ndispatchers = [{matcher = ['s.*'], partition = 'tsx'}, {matcher = ['z.t'], partition = 'ts'}]"
    given = parse_file(text, name="c.toml").settings
    limits = surveyed(survey(spark, small, changefeed=given)).limits
    unknown = "TiCDC knows no dispatcher 'tsx' (the nearest is ts): it writes a warning and dispatches s.* by table."
    assert unknown in limits and any("rule for z.t matches no table of the log" in limit for limit in limits)
    large = tmp_path / "large.jsonl"
    large.write_text("".join(Path(small).read_text() for _ in range(60)))
    found = survey(spark, str(large), changefeed=given)
    assert not found.is_whole
    limits = surveyed(found).limits
    assert unknown in limits and not any("matches no table of the log" in limit for limit in limits)
    assert any(limit.startswith("Which rules of the dispatchers match no table is known once") for limit in limits)
    assert not any("dispatchers" in limit for limit in surveyed(survey(spark, str(large))).limits)
