"""Seconds, and CPU seconds of all processes, to list, open, load and check a storage folder of many small files.

python benchmarks/storage_folder.py --files 100000 [--folder DIR]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from run import Meter

from ticdc_lab import load, session
from ticdc_lab.codecs.table_file import checksum
from ticdc_lab.settings import Settings
from ticdc_lab.sources.fsck import fsck
from ticdc_lab.sources.storage import listing

VERSION = 470603993574539264
COLUMNS = [
    {"ColumnName": "id", "ColumnType": "BIGINT", "ColumnPrecision": "20", "ColumnIsPk": "true"},
    {"ColumnName": "v", "ColumnType": "VARCHAR", "ColumnPrecision": "64"},
]
FILES_A_TABLE = 100
ROWS_A_FILE = 10


def make(root: Path, files: int) -> None:
    """Tables of 100 files of 10 csv rows, with schema and index files and a checkpoint."""
    for table in range((files + FILES_A_TABLE - 1) // FILES_A_TABLE):
        name = f"t{table}"
        body = {"Table": name, "Schema": "s", "Version": 1, "TableVersion": VERSION, "Query": f"CREATE TABLE {name}",
                "Type": 3, "TableColumns": COLUMNS, "TableColumnsTotal": 2}  # fmt: skip
        data = root / "s" / name / str(VERSION) / "2026-11-20"
        for folder in (data / "meta", root / "s" / name / "meta"):
            folder.mkdir(parents=True)
        (root / f"s/{name}/meta/schema_{VERSION}_{checksum(body):010d}.json").write_text(json.dumps(body, indent=4))
        for n in range(1, FILES_A_TABLE + 1):
            rows = (f'"I","{name}","s",{VERSION + n * ROWS_A_FILE + i},{n * ROWS_A_FILE + i},"value {i}"\r\n'
                    for i in range(ROWS_A_FILE))  # fmt: skip
            (data / f"CDC{n:020d}.csv").write_text("".join(rows))
        (data / "meta/CDC.index").write_text(f"CDC{FILES_A_TABLE:020d}.csv\n")
    (root / "metadata").write_text(json.dumps({"checkpoint-ts": VERSION + 10 * FILES_A_TABLE * ROWS_A_FILE}))


def main() -> None:
    """Make the folder if there is none, and time what reads it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = args.folder or Path(temporary) / "feed"
        if not root.exists():
            make(root, args.files)
        spark = session("spark")
        spark.range(1).count()
        for step, work in {
            "list": lambda: listing(spark, str(root), local=root, settings=Settings()).sizes,
            "open, no file decoded but a sample": lambda: load(spark, str(root)),
            "load into Parquet": lambda: load(spark, str(root)).materialise(f"{temporary}/out").counts,
            "fsck": lambda: fsck(spark, str(root)).count(),
        }.items():
            found: list[Any] = []
            own = time.process_time()
            took = Meter().time(lambda work=work, found=found: found.append(work()))
            cpu = took["cpu_s"] + time.process_time() - own
            said = len(found[0]) if isinstance(found[0], dict) else getattr(found[0], "protocol", found[0])
            print(f"{step}: {took['wall_s']:.1f} s, {cpu:.1f} s CPU ({said})", flush=True)


if __name__ == "__main__":
    main()
