"""Parquet parts that workers read and write by themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from ticdc_lab.errors import SourceError
from ticdc_lab.sources import parquet


@pytest.mark.parametrize(
    ("said", "path"),
    [
        ("FileNotFoundError: [Errno 2] No such file or directory: '/a/b.gz'\n", "/a/b.gz"),
        ("FileNotFoundError: [Errno 2] Failed to open local file '/a/x.parquet'. Detail: [errno 2]", "/a/x.parquet"),
        ("ValueError: 'something' else", None),
    ],
)
def test_what_a_worker_could_not_find(said: str, path: str | None) -> None:
    """It is read from what Spark tells of the failure: a source's file, or a part that could not be written."""
    assert parquet.unseen(RuntimeError(f"org.apache.spark.SparkException: Job aborted\n{said}")) == path


def test_what_a_worker_wrote_elsewhere(tmp_path: Path) -> None:
    """A part that the driver does not see is no part of the log: an error names it and what to do."""
    (tmp_path / "part-0.parquet").touch()
    parquet.require_shared([str(tmp_path / "part-0.parquet")])
    with pytest.raises(SourceError, match=r"part-1\.parquet is there on one machine.*the driver does not see it"):
        parquet.require_shared([str(tmp_path / "part-0.parquet"), str(tmp_path / "part-1.parquet")])
