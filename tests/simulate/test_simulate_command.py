"""``ticdc-lab simulate scheduler``: what it prints, what it writes, and its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from ticdc_lab.cli import main
from ticdc_lab.simulate.trace import TRACE

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "data/scenarios/scheduler"


def simulate(name: str, *args: str, spark: SparkSession | None = None) -> Result:
    """The command in this process; Spark is the suite's where it is needed."""
    return CliRunner().invoke(main, ["simulate", "scheduler", str(FOLDER / f"{name}.yaml"), *args], obj=spark)


def test_a_run_is_told_in_sentences_and_exit_code_0() -> None:
    """Who owned, what was decided and why, how it ended, which assertions held and since when."""
    done = simulate("owner-crash", "--lines", "0")
    assert done.exit_code == 0, done.output
    for said in (
        "owner-crash (v2, seed 1): 20s, ",
        "capture-1    crashed",
        "capture-3    is the owner, owner-rev 3 (etcd elected it at revision 3)",
        "table 1: none -> preparing (the owner dispatched it)",
        "owner capture-3; global checkpoint 200ms behind; 6 of 6 tables replicate",
        "held    always: no double write",
        "4.05s after crash capture-1: all 6 tables replicate",
    ):
        assert said in done.stdout
    assert "Again:" not in done.stdout


def test_a_run_says_when_the_sink_gets_slow() -> None:
    """The cause comes before what follows from it."""
    done = CliRunner().invoke(main, ["simulate", "pipeline", str(FOLDER.parent / "pipeline" / "slow-sink.yaml")])
    assert done.exit_code == 0, done.output
    assert "downstream: at once -> 50 rows/s (it takes 50 rows a second from now on)" in done.stdout


def test_a_violation_is_exit_code_1_with_the_command_that_shows_it_again() -> None:
    """The assumption of TiCDC's design is switched off."""
    done = simulate("partition-broken-assumption", "--seed", "3", "--set", "settings.stop_lag=6s")
    assert done.exit_code == 1
    assert "No Double Write\n  capture-1 and capture-" in done.stdout
    command = f"ticdc-lab simulate scheduler {FOLDER}/partition-broken-assumption.yaml --seed 3"
    assert f"\nAgain: {command} --set settings.stop_lag=6s\n" in done.stdout


def test_a_failed_assertion_is_exit_code_1() -> None:
    """With the first moment, the step and the line."""
    done = simulate("ten-steps", "--set", "settings.pace.prepare=900ms")
    assert done.exit_code == 1
    assert (
        "FAILED  within 1s after 0s: every table replicates\n          not so until 1s: table 1 is pre" in done.stdout
    )
    assert ", line 7)" in done.stdout


def test_a_run_over_its_step_limit_says_what_it_was_doing_and_exit_code_2() -> None:
    """It cannot be judged."""
    done = simulate("chaos", "--set", "step_limit=500")
    assert done.exit_code == 2
    assert "Stopped at its limit of 500 steps, at " in done.stdout and "; next: a " in done.stdout


def test_the_same_input_gives_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    """Another hash seed of Python's, too: text, JSON and both files of the trace."""
    outs = []
    for seed in ("1", "2"):
        file = tmp_path / f"{seed}.parquet"
        command = [sys.executable, "-m", "ticdc_lab.cli", "simulate", "scheduler", str(FOLDER / "chaos.yaml")]
        more = ["--set", "until=46s", "--set", "assert=[]", "--out", str(file), "--json"]
        env = {**os.environ, "PYTHONHASHSEED": seed}
        told = subprocess.run([*command, *more], capture_output=True, check=True, env=env, cwd=ROOT).stdout
        outs.append((told, file.read_bytes()))
    assert outs[0] == outs[1]
    assert len(outs[0][1]) > 50_000


def test_the_trace_is_written_in_each_form(spark: SparkSession, tmp_path: Path) -> None:
    """Parquet, JSON Lines and Delta hold the same rows."""
    outs = [f"{tmp_path}/t.parquet", f"{tmp_path}/t.jsonl", f"{tmp_path}/t.delta"]
    for out in outs:
        assert simulate("ten-steps", "--out", out, spark=spark).exit_code == 0
    parquet = pq.read_table(outs[0])
    assert parquet.schema.names == TRACE.names
    lines = [json.loads(line) for line in Path(outs[1]).read_text(encoding="utf-8").splitlines()]
    assert lines == parquet.to_pylist()
    stored = spark.read.format("delta").load(outs[2])
    assert stored.count() == parquet.num_rows
    messages = [r["message"] for r in lines if r["kind"] == "sent" and r["message"][:8] in ("Announce", "Dispatch")]
    assert sorted(messages) == ["Announce"] * 2 + ["DispatchTable"] * 2 + ["DispatchTableResponse"] * 2


def test_json_is_one_object_with_all_that_was_told() -> None:
    """Also for a machine."""
    done = simulate("drain", "--json")
    told = json.loads(done.stdout)
    assert (told["seed"], told["end"]["because"], told["violation"]) == (0, "time", None)
    assert all(o["held"] for o in told["assertions"]) and len(told["assertions"]) == 5
    assert any(h["what"].startswith("drain: capture-1") for h in told["happened"])


def test_many_seeds_are_summed_up(spark: SparkSession, tmp_path: Path) -> None:
    """As a Spark job: failures with their commands, costs, and a row a seed where it is to be written."""
    args = ["--seeds", "3..5", "--set", "settings.stop_lag=6s", "--out", f"{tmp_path}/runs.jsonl"]
    done = simulate("partition-broken-assumption", *args, spark=spark)
    assert done.exit_code == 1, done.output
    rows = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [r["seed"] for r in rows] == [3, 4, 5]
    assert "seeds 3..5: 3 runs\n3 violated" in done.stdout
    assert "--seed 4 --set settings.stop_lag=6s" in done.stdout
    told = json.loads(simulate("ten-steps", "--seeds", "1..2", "--json", spark=spark).stdout)
    assert (told["runs"], told["violated"], told["failed"], told["not_held"]) == (2, 0, 0, [])


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--set", "tick"], "expected PATH=VALUE"),
        (["--set", "settings.tik=1s"], "expected a known field of settings; found tik"),
        (["--set", "network.loss=2"], "expected a probability from 0 to 1 at network.loss; found 2"),
        (["--seeds", "5..3"], "expected A..B"),
        (["--seeds", "1..3", "--seed", "2"], "either --seed or --seeds"),
        (["--out", "/nowhere/t.parquet"], "mkdir -p /nowhere"),
    ],
)
def test_what_cannot_be_run_is_said_and_exit_code_2(args: list[str], said: str) -> None:
    """In a sentence, without a trace of Python."""
    done = simulate("drain", *args)
    assert done.exit_code == 2
    assert said in done.stderr and "Traceback" not in done.stderr


def explore(*args: str) -> Result:
    """The command without a file."""
    return CliRunner().invoke(main, ["simulate", "scheduler", *args])


def test_a_small_world_is_searched_completely() -> None:
    """Exit code 0, with the number of states."""
    done = explore("--explore", "captures=1,tables=1,moments=1", "--json")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["complete"], told["broken"], told["path"]) == (0, True, None, [])
    assert told["states"] > 10


def test_a_small_world_of_another_protocol_is_searched() -> None:
    """v3 and v4 have worlds of their own; one that is unknown is a mistake of use."""
    told = json.loads(explore("--explore", "variant=v4,captures=2,tables=1,moments=0", "--json").stdout)
    assert (told["states"], told["complete"]) == (418, True)
    own = json.loads(explore("--explore", "variant=v4,coordinator=true,tables=1,moments=0", "--json").stdout)
    assert (own["states"], own["complete"], own["broken"]) == (1506, True, None)
    assert explore("--explore", "variant=v5").exit_code == 2


def test_a_search_that_finds_a_violation_shows_the_shortest_way() -> None:
    """Exit code 1; a capture whose session ended writes on."""
    done = explore("--explore", "captures=2,tables=1,moments=0,expiries=1,stops_at_once=false")
    assert done.exit_code == 1, done.output
    assert "VIOLATED: No Double Write\n" in done.stdout
    assert "The shortest way there:\n   1  looks capture-" in done.stdout
    assert 'DispatchTable {"epoch":' in done.stdout


def test_a_search_that_does_not_end_is_exit_code_2() -> None:
    """It has proved nothing."""
    done = explore("--explore", "captures=2,tables=2,crashes=1", "--most-states", "100")
    assert done.exit_code == 2 and "nothing is violated so far" in done.stdout


@pytest.mark.parametrize(
    "args", [[], ["--explore", "captures=x"], ["--explore", "cats=1"], ["x.yaml", "--explore", ""]]
)
def test_a_world_that_cannot_be_is_said(args: list[str]) -> None:
    """With what is expected."""
    done = explore(*args)
    assert done.exit_code == 2 and ("expected some of captures=N" in done.stderr or "Give either" in done.stderr)


def test_a_scenario_that_is_not_there_is_said() -> None:
    """With its name."""
    done = simulate("nothing")
    assert done.exit_code == 2 and "nothing.yaml: the scenario cannot be read" in done.stderr


def test_why_names_what_holds_in_every_model() -> None:
    """The checkpoint of the table scheduler, each DDL job that waits; and that nothing does."""
    folder = FOLDER.parent
    for model, file, at, said in (
        ("scheduler", "stuck-table", "8s", "Why checkpoint_ts at 8s: capture-2 is the slowest, held by table 2, since"),
        ("scheduler", "stuck-table", "2s", "Why checkpoint_ts at 2s: nothing holds it."),
        ("ddl-service", "slow-server", "4s", "Why job:cluster1/1 at 4s: cluster1/tidb-2"),
        ("ddl-service", "slow-server", "0s", "Why any DDL job at 0s: nothing holds it."),
    ):
        run = CliRunner().invoke(main, ["simulate", model, str(folder / model / f"{file}.yaml"), "--why", at])
        assert said in run.stdout, run.output
