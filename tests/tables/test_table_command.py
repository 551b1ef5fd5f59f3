"""``ticdc-lab table`` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from conftest import ROOT, golden
from pyspark.sql import SparkSession

from ticdc_lab.cli import main
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.tables.knowledge import RowsKnown, no_such_table

OPEN = str(golden("messages_open-protocol_small.jsonl.gz"))
PLAIN = str(golden("messages_canal-json_small.jsonl.gz"))
RESOLVED = 470603993791332352


@pytest.fixture
def table(spark: SparkSession) -> Any:
    """``table(FILE, ...)`` runs the command on the suite's session."""

    def run(*args: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, ["table", *args], obj=spark)
        assert result.exit_code == code, result.output
        return result

    return run


def test_a_table_is_written_as_it_is_at_resolved_ts(table: Any, tmp_path: Path) -> None:
    """Rows come in the order of their key, with what is reported about them; the same call gives the same bytes."""
    outs = [tmp_path / f"{n}.jsonl" for n in (1, 2)]
    said = [table(OPEN, "--table", "shop.orders", "--out", str(out), "--json").stdout for out in outs]
    facts = json.loads(said[0])
    assert (facts["table"], facts["ts"], facts["key"], facts["limits"]) == (
        "shop.orders",
        RESOLVED,
        ["user_id", "seq"],
        [],
    )
    rows = [json.loads(line) for line in outs[0].read_text().splitlines()]
    assert len(rows) == 108 and outs[0].read_bytes() == outs[1].read_bytes()
    assert [(r["user_id"], r["seq"]) for r in rows] == sorted((r["user_id"], r["seq"]) for r in rows)
    own = ["user_id", "seq", "Total_Amount", "coupon", "flags", "bits", "at"]
    assert list(rows[0]) == [*own, "_commit_ts", "_inferred", "_unconvertible", "_commit_ts_text"]


def test_a_table_is_looked_at_without_a_place_to_write_it_to(table: Any) -> None:
    """The first rows are printed, and how to have them all; as JSON they are rows."""
    said = table(OPEN, "--table", "shop.orders").stdout.splitlines()
    assert said[0].startswith("shop.orders has 108 rows at ") and said[1].split()[:2] == ["user_id", "seq"]
    assert len(said) == 1 + 1 + 20 + 1 and said[-1] == "These are the first 20; --out writes them all."
    told = json.loads(table(OPEN, "--table", "shop.orders", "--json").stdout)
    assert len(told["rows"]) == 100 and told["out"] is None


@pytest.mark.parametrize("protocol", ["canal-json-tidb", "debezium", "open-protocol", "simple"])
def test_a_view_is_no_table_that_the_log_lacks(table: Any, protocol: str) -> None:
    """What the log has of it is its DDL; it reads no table here, though one has the name of a word of it."""
    log = str(ROOT / f"tests/data/torture/messages_{protocol}.jsonl.gz")
    said = table(log, "--table", "torture.VW", code=2).stderr
    assert "torture.VW is a view, no table. The log has its definition, which was created at 470775813460721666" in said
    assert "VIEW `vw` AS SELECT 1 AS `o.ne`" in said and "torture.select" not in said


def test_the_hint_names_a_table_that_a_view_reads() -> None:
    """Also where a query qualifies it, or joins it; a sequence reads none."""
    ddl = [
        (1, "s", "a", "CREATE TABLE a (id INT PRIMARY KEY)"),
        (2, "s", "v", "CREATE VIEW v AS SELECT a AS x FROM t JOIN `s`.`A` ON 1"),
        (3, "s", "q", "CREATE SEQUENCE q"),
        (4, "s", "w", "CREATE VIEW w AS SELECT a FROM t"),
    ]
    catalog = Catalog.from_ddl(ddl)
    for name, hint in (("v", "--table s.a."), ("q", "SCHEMA.TABLE."), ("w", "SCHEMA.TABLE.")):
        error = no_such_table(f"s.{name}", catalog, RowsKnown({}, {}, {}))
        assert error.hint is not None and error.hint.endswith(hint), error.hint
        assert f"is a {'sequence' if name == 'q' else 'view'}, no table" in error.message


def test_what_cannot_be_told_ends_in_a_sentence(table: Any, tmp_path: Path) -> None:
    """Above resolved_ts, without commit_ts, and for an unknown table the command shows why and exits with 2."""
    out = ("--out", str(tmp_path / "t.jsonl"))
    late = table(OPEN, "--table", "shop.orders", "--as-of", str(RESOLVED + 1), *out, code=2)
    assert f"complete only up to resolved_ts {RESOLVED}" in late.stderr
    assert "commit_ts" in table(PLAIN, "--table", "shop.orders", *out, code=2).stderr
    assert "has no table shop.nothing; it contains" in table(OPEN, "--table", "shop.nothing", *out, code=2).stderr
    assert "expected SCHEMA.TABLE" in table(OPEN, "--table", "orders", *out, code=2).stderr
    assert not (tmp_path / "t.jsonl").exists()
