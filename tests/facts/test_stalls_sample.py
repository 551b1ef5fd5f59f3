"""The sample of a changefeed that stands is what its scenario gives: the story in `data/README.md` is true."""

from __future__ import annotations

import gzip
from pathlib import Path

from stalls_sample import OUT, stalls_log

from ticdc_lab.simulate.pipeline.log import write_rows


def test_the_file_is_what_the_scenario_gives(tmp_path: Path) -> None:
    """Message by message; the way it is packed may be another one elsewhere."""
    write_rows(stalls_log(), str(tmp_path / "again.jsonl"))
    assert gzip.decompress(OUT.read_bytes()) == (tmp_path / "again.jsonl").read_bytes()
