"""Folders of the storage sink for tests: the golden ones, small ones made here, and reading one without Spark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from conftest import golden

from ticdc_lab.codecs.table_file import checksum
from ticdc_lab.settings import UNKNOWN, Settings
from ticdc_lab.sources import storage
from ticdc_lab.sources.storage import Listing, local_files
from ticdc_lab.sources.storage_reading import Reading

TREES = ("small_canal-json", "small_csv", "small_csv_committs_oldvalue", "small_csv_table_across_nodes")
VERSION = 470603993574539264
INT = {"ColumnName": "id", "ColumnType": "INT", "ColumnPrecision": "11", "ColumnIsPk": "true"}
TEXT = {"ColumnName": "v", "ColumnType": "VARCHAR", "ColumnPrecision": "20"}


def unpack(folder: Path) -> Path:
    """The four golden trees below a folder."""
    shutil.unpack_archive(golden("storage_small.tar.gz"), folder)
    return folder / "storage"


def listing_of(root: Path, settings: Settings = UNKNOWN) -> Listing:
    """What lies in a folder."""
    return storage.listed(local_files(root), str(root.resolve()), settings)


def settled_reading(found: Listing, settings: Settings = UNKNOWN) -> tuple[Reading, bool]:
    """How a folder is read, by what its first files show, and whether its rows have a commit_ts."""
    table, some = storage.files_table(found), storage.first_files(found)
    rows = table.filter(pc.is_in(table["path"], pa.array(some, pa.string())))

    def looked(reading: Reading) -> list[dict[str, Any]]:
        batches = storage.look(reading)(iter(rows.to_batches()))
        return [json.loads(text) for batch in batches for text in batch["told"].to_pylist()]

    return storage.settled(Reading(found.topic, found.protocol, found.root, settings), looked)


def rows_of(root: Path, settings: Settings = UNKNOWN) -> list[dict[str, Any]]:
    """What a folder decodes to, events and quarantine, without Spark."""
    found = listing_of(root, settings)
    files = storage.files_table(found).combine_chunks()
    reading, _ = settled_reading(found, settings)
    return pa.Table.from_batches(list(reading.events(images=True)(iter(files.to_batches())))).to_pylist()


def put(root: Path, path: str, content: bytes | str = b"") -> Path:
    """Write a file below a folder."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def put_schema(root: Path, *columns: dict[str, Any], version: int = VERSION, where: str = "s/t", **more: Any) -> str:
    """Write a schema file of table ``s.t`` whose name is right; gives its path."""
    body = {"Table": "t", "Schema": "s", "Version": 1, "TableVersion": version, "Query": "CREATE TABLE t", "Type": 3,
            "TableColumns": list(columns), "TableColumnsTotal": len(columns)} | more  # fmt: skip
    path = f"{where}/meta/schema_{version}_{checksum(body):010d}.json"
    put(root, path, json.dumps(body, indent=4))
    return path


def put_data(
    root: Path, content: bytes | str, number: int = 1, *, where: str = f"s/t/{VERSION}", ext: str = "csv"
) -> str:
    """Write a data file of table ``s.t``; gives its path."""
    path = f"{where}/CDC{number:020d}.{ext}"
    put(root, path, content)
    return path


def put_index(root: Path, number: int, *, where: str = f"s/t/{VERSION}", ext: str = "csv") -> str:
    """Write the index file of a data folder; gives its path."""
    path = f"{where}/meta/CDC.index"
    put(root, path, f"CDC{number:020d}.{ext}\n")
    return path


def whole_folder(root: Path) -> Path:
    """A small folder without a fault: two files, three rows, the last one above the checkpoint's neighbour."""
    put(root, "metadata", json.dumps({"checkpoint-ts": VERSION + 10}))
    put_schema(root, INT, TEXT)
    put_data(root, f'"I","t","s",{VERSION + 1},1,"a"\r\n"I","t","s",{VERSION + 2},2,"b"\r\n')
    put_data(root, f'"D","t","s",{VERSION + 3},1,"a"\r\n', 2)
    put_index(root, 2)
    return root
