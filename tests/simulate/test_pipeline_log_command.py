"""``ticdc-lab simulate pipeline`` with ``--log`` and ``--truth``, and over many seeds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import DataFrame, SparkSession

from ticdc_lab.cli import main
from ticdc_lab.sources.load import load

FOLDER = Path(__file__).resolve().parents[2] / "data/scenarios/pipeline"


def simulate(*args: str, name: str = "ddl-barrier", spark: SparkSession | None = None) -> Result:
    """The command in this process; Spark is the suite's where it is needed."""
    return CliRunner().invoke(main, ["simulate", "pipeline", str(FOLDER / f"{name}.yaml"), *args], obj=spark)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run as a log and its truth, in every form; the log twice under different names."""
    folder = tmp_path_factory.mktemp("logs")
    for log, protocol, truth in (
        ("one.jsonl.gz", "open-protocol", "truth.parquet"),
        ("another.jsonl.gz", "open-protocol", "truth.jsonl"),
        ("log.parquet", "canal-json", "truth.jsonl.gz"),
    ):
        done = simulate("--log", str(folder / log), "--protocol", protocol, "--truth", str(folder / truth))
        assert done.exit_code == 0, done.output
    return folder


def rows_of(events: DataFrame | pa.Table) -> list[str]:
    """Row changes as text: commit_ts, table, operation, both images."""
    columns = ["kind", "commit_ts", "schema_name", "table_name", "op", "columns", "before"]
    found: list[dict[str, Any]] = (
        events.select(columns).to_pylist()
        if isinstance(events, pa.Table)
        else [r.asDict(recursive=True) for r in events.select(*columns).collect()]
    )
    for row in found:
        for image in ("columns", "before"):
            row[image] = row[image] and [(c["name"], c["value"]) for c in row[image]]
    return sorted(str(list(r.values())) for r in found if r["kind"] == "row")


@pytest.mark.parametrize(("log", "protocol"), [("one.jsonl.gz", "open-protocol"), ("log.parquet", "canal-json")])
def test_the_log_loads_back_as_the_truth(spark: SparkSession, written: Path, log: str, protocol: str) -> None:
    """Every row with both images, once: nothing goes wrong in this run."""
    found = load(spark, str(written / log), protocol=protocol)
    truth = rows_of(pq.read_table(written / "truth.parquet"))
    assert len(truth) > 100
    assert rows_of(found.events) == truth
    assert found.quarantine.isEmpty()


def test_the_bytes_of_a_log_do_not_depend_on_its_name(written: Path) -> None:
    """A gzip header has room for a name and a moment."""
    assert (written / "one.jsonl.gz").read_bytes() == (written / "another.jsonl.gz").read_bytes()


def test_the_truth_is_the_same_in_every_form(spark: SparkSession, written: Path) -> None:
    """As JSON lines, packed and not, and as Parquet."""
    lines = (written / "truth.jsonl").read_text().splitlines()
    assert [json.loads(line)["commit_ts"] for line in lines] == pq.read_table(written / "truth.parquet")[
        "commit_ts"
    ].to_pylist()
    assert spark.read.text(str(written / "truth.jsonl.gz")).count() == len(lines)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--protocol", "canal-json"), "--protocol is the protocol of --log"),
        (("--seeds", "0..1", "--log", "log.parquet"), "--log and --truth are of one run"),
        (("--log", "log.csv"), "expected a name that ends in one of .parquet, .jsonl, .jsonl.gz"),
        (("--log", "nowhere/log.parquet"), "nowhere does not exist."),
        (("--log", "log.parquet", "--protocol", "smoke"), "smoke"),
    ],
)
def test_what_cannot_be_written_is_refused(args: tuple[str, ...], said: str) -> None:
    """With what is wrong, before the scenario is even read."""
    done = simulate(*args, name="there is none")
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())


def test_many_seeds_are_run_as_a_spark_job(spark: SparkSession, tmp_path: Path) -> None:
    """A row each, with what it cost."""
    done = simulate("--seeds", "3..5", "--json", "--out", str(tmp_path / "runs.parquet"), name="first-run", spark=spark)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["runs"], told["violated"], told["failed"]) == (3, 0, 0)
    assert sorted(pq.read_table(tmp_path / "runs.parquet")["seed"].to_pylist()) == [3, 4, 5]
