"""A DuckDB file that cannot be a target is refused in our words, by what is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from ticdc_lab.consumer.replay_plan import Batch, TargetProgress
from ticdc_lab.consumer.sinks.duckdb import DuckDBSink, _said
from ticdc_lab.errors import SourceError


@pytest.mark.parametrize("size", [0, 5, 3_000, 200_000])
def test_a_file_cut_at_any_size_is_named_with_its_size(tmp_path: Path, size: int) -> None:
    """DuckDB gives a system error, a checksum or a short read; the reader gets one sentence."""
    whole = tmp_path / "whole.db"
    with duckdb.connect(str(whole)) as db:
        db.execute("CREATE TABLE t AS SELECT range AS a, hash(range) AS b FROM range(50000)")
    cut = tmp_path / "cut.db"
    cut.write_bytes(whole.read_bytes()[:size])
    with pytest.raises(SourceError, match=rf"cut\.db: expected a DuckDB database; found {size:,} bytes"):
        DuckDBSink(str(cut), [], "canal-json")


def test_a_folder_a_missing_folder_and_a_file_in_use_are_told_apart(tmp_path: Path) -> None:
    """Each with what to do."""
    with pytest.raises(SourceError, match="is a folder"):
        DuckDBSink(str(tmp_path), [], "canal-json")
    with pytest.raises(SourceError, match="Make the folder"):
        DuckDBSink(str(tmp_path / "none/t.db"), [], "canal-json")
    busy = tmp_path / "busy.db"
    code = "import duckdb, sys; db = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(busy)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "open\n"
        with pytest.raises(SourceError, match="is open in another process"):
            DuckDBSink(str(busy), [], "canal-json")
        other.communicate("")


@pytest.mark.parametrize(
    ("said", "do"), [("No space left on device", "Make room"), ("Conversion Error", "audit SOURCE")]
)
def test_a_full_disk_is_no_contradiction_of_the_log(said: str, do: str) -> None:
    """DuckDB names it as the cause of a failed commit."""
    batch = Batch(1, 2, TargetProgress("transaction", "", {}, 0))
    with pytest.raises(SourceError) as found, _said("duckdb:///x.db", batch):
        raise duckdb.TransactionException(f'Failed to commit: Could not write file "x.db.wal": {said}')
    assert do in found.value.hint
