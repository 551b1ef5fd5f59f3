"""Loads of simple, avro and claim checks: counts, limits, transactions, and what the command line shows of them."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from conftest import golden, json_lines
from pyspark.sql import SparkSession

from ticdc_lab.cli import main
from ticdc_lab.codecs.keys import with_keys
from ticdc_lab.errors import SourceError
from ticdc_lab.events.schema import KEYS
from ticdc_lab.facts.limits import counts_of
from ticdc_lab.sources.load import load
from ticdc_lab.transactions import transactions

SCHEMAS = str(golden("avro_schemas_small.jsonl.gz"))
AVRO_PROD = str(golden("messages_avro-prod_small.jsonl.gz"))


@pytest.fixture
def lab(spark: SparkSession) -> Any:
    """``lab("audit", FILE)`` runs a command on the suite's session."""

    def run(*args: str) -> Result:
        return CliRunner().invoke(main, list(args), obj=spark)

    return run


def test_rows_before_their_schema_and_on_another_partition_are_decoded(spark: SparkSession, tmp_path: Path) -> None:
    """The last message first, and every schema on a partition of its own: all rows are there, with Spark's hashes."""
    some = list(json_lines("messages_simple_small.jsonl.gz"))[::-1]
    bringing = [m for m in some if m["kind"] not in ("row", "checkpoint")]
    rows = [m for m in some if m["kind"] == "row"]
    moved = [m | {"partition": 9, "offset": i} for i, m in enumerate(bringing)]
    lines = "".join(json.dumps(m) + "\n" for m in rows + moved)
    (tmp_path / "turned.jsonl").write_text(lines)
    log = load(spark, str(tmp_path / "turned.jsonl")).materialise(str(tmp_path / "log"))
    assert log.protocol == "simple" and log.counts is not None
    assert (log.counts.decoded, log.counts.quarantined, log.counts.incomplete) == (len(some) - 124, 0, 0)
    again = log.events.drop(*KEYS.names).transform(with_keys)
    wrong = [f"NOT a.{k} <=> b.{k}" for k in KEYS.names]
    same = again.alias("a").join(log.events.alias("b"), ["partition", "offset"]).where("b.kind = 'row'")
    assert same.count() == 2_101 and same.where(" OR ".join(wrong)).count() == 0


def test_rows_whose_schema_the_log_does_not_have_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    """A recording that begins after the schemas were sent: its rows are in quarantine, none is gone."""
    rows = [m for m in json_lines("messages_simple_small.jsonl.gz") if m["kind"] == "row"]
    (tmp_path / "late.jsonl").write_text("".join(json.dumps(m) + "\n" for m in rows))
    log = load(spark, str(tmp_path / "late.jsonl")).materialise(str(tmp_path / "log"))
    assert log.protocol == "simple" and log.counts is not None
    assert (log.counts.decoded, log.counts.quarantined) == (0, 2_101)
    assert {r["error_class"] for r in log.quarantine.select("error_class").distinct().collect()} == {"schema-unknown"}


def test_simple_restores_the_transactions_that_canal_json_does(spark: SparkSession) -> None:
    """After restarts of the changefeed: the same transactions, rows and repeats."""
    simple, canal = (
        Counter(
            (r["commit_ts"], r["n_rows"], r["duplicates"], tuple(r["tables"]), r["complete"])
            for r in load(spark, str(golden(f"messages_{name}_small-dup-restart.jsonl.gz")))
            .events.transform(transactions)
            .select("commit_ts", "n_rows", "duplicates", "tables", "complete")
            .collect()
        )
        for name in ("simple", "canal-json-tidb")
    )
    assert simple == canal and simple.total() > 100
    assert sum(t[2] * n for t, n in simple.items()) == 2_434 - 2_101


@pytest.mark.soak
def test_avro_of_production_says_what_it_cannot_prove(lab: Any) -> None:
    """Deletes without commit_ts, rows that are not whole, no watermark: each is reported, nothing is called whole."""
    said = lab("transactions", AVRO_PROD, "--schema-registry", SCHEMAS, "--json")
    assert said.exit_code == 0, said.output
    facts = json.loads(said.stdout)
    assert (facts["protocol"], facts["quarantined"], facts["complete"]) == ("avro", 0, 0)
    limits = " ".join(facts["limits"])
    assert "302 row changes of this log carry no commit_ts" in limits
    assert "302 row changes of this log are incomplete" in limits and "no watermark" in limits
    marks = lab("watermarks", AVRO_PROD, "--schema-registry", SCHEMAS)
    assert marks.exit_code == 0 and "nothing is proved complete" in marks.stdout
    audit = json.loads(lab("audit", AVRO_PROD, "--schema-registry", SCHEMAS, "--json").stdout)
    assert "nothing_below_resolved_ts" in audit["not_checked"] and audit["limits"]


def test_avro_without_its_schemas_answers_nothing(lab: Any) -> None:
    """The schemas are what is missing, and the error reports it."""
    said = lab("transactions", AVRO_PROD)
    assert said.exit_code == 2 and "none of 1685 messages could be decoded as avro" in said.stderr
    assert "quarantined 1685 x schema-unknown" in said.stderr


def test_a_claim_check_makes_a_log_whole(spark: SparkSession, tmp_path: Path) -> None:
    """Without the folder the log shows how many rows are not whole, with it that none is."""
    shutil.unpack_archive(golden("claim-check.tar.gz"), tmp_path)
    source = str(golden("messages_canal-json-claimcheck-raw_small.jsonl.gz"))
    keys_only = load(spark, source).materialise(str(tmp_path / "a"), images=False)
    whole = load(spark, source, claim_check=str(tmp_path / "claim-check")).materialise(str(tmp_path / "b"))
    assert keys_only.counts is not None and whole.counts is not None
    assert keys_only.counts.incomplete > 300 and whole.counts.incomplete == 0
    assert keys_only.counts.events == whole.counts.events and whole.limits == ()
    (limit,) = keys_only.limits
    assert f"{keys_only.counts.incomplete} row changes of this log are incomplete" in limit
    assert counts_of(keys_only.decoded) == keys_only.counts


def test_places_that_are_none_are_refused_before_anything_is_read(spark: SparkSession, tmp_path: Path) -> None:
    """A folder that is not there, a file that is not there, a URL that is none; no password is shown."""
    for wrong in ({"claim_check": str(tmp_path / "gone")}, {"schema_registry": str(tmp_path / "gone")},
                  {"schema_registry": "ftp://me:s3cret@host/"}):  # fmt: skip
        with pytest.raises(SourceError) as e:
            load(spark, AVRO_PROD, **wrong)
        assert "s3cret" not in str(e.value)
