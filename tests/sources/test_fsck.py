"""fsck: a whole folder has no finding, and every kind of finding is found where it is planted."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import ROOT
from pyspark.sql import SparkSession

sys.path.insert(0, str(ROOT / "tests"))
import stored
from stored import INT, TEXT, TREES, VERSION, put, put_data, put_index, put_schema

from ticdc_lab.cli import main
from ticdc_lab.errors import SourceError
from ticdc_lab.settings.file import given_settings
from ticdc_lab.sources import storage
from ticdc_lab.sources.fsck import FINDINGS, checkpoint_in, file_findings, fsck, name_findings
from ticdc_lab.sources.storage_reading import Reading

FOLDER = f"s/t/{VERSION}"


def found(spark: SparkSession, root: Path) -> set[tuple[str, str, str, int]]:
    """Kind, severity, path and count of every finding; each shows what was expected and found."""
    findings = fsck(spark, str(root))
    assert findings.columns == FINDINGS.names
    rows = findings.collect()
    assert all(r.expected and r.found for r in rows)
    return {(r.kind, r.severity, r.path, r.n) for r in rows}


def found_by_hand(root: Path) -> set[tuple[str, str, str, int]]:
    """The same without Spark: names, then file by file."""
    listing = stored.listing_of(root)
    files = storage.files_table(listing, with_index=True).to_pylist()
    reading = Reading("feed", listing.protocol, str(root), given_settings({"csv.binary-encoding-method": "base64"}))
    checkpoint = checkpoint_in(reading, [f for f in files if f["kind"] == "metadata"])
    findings = [*name_findings(listing), *file_findings(reading, checkpoint, files)]
    assert all(f.expected and f.found for f in findings)
    return {(f.kind, f.severity, f.path, f.n) for f in findings}


def file(number: int) -> str:
    """The path of a data file."""
    return f"{FOLDER}/CDC{number:020d}.csv"


def damaged_schema(root: Path) -> str:
    """Change a type in the definition and nothing else; gives the file's path."""
    path = next(p for p in (root / "s/t/meta").iterdir())
    path.write_text(path.read_text().replace("VARCHAR", "VARCHAX"))
    return str(path.relative_to(root))


def renamed_schema(root: Path) -> str:
    """Give a schema file the next version in its name alone."""
    path = next(p for p in (root / "s/t/meta").iterdir())
    new = path.with_name(path.name.replace(str(VERSION), str(VERSION + 1)))
    path.rename(new)
    return str(new.relative_to(root))


def plant(root: Path, kind: str) -> set[tuple[str, str, str, int]]:
    """Plant one fault into a whole folder; gives the findings that it must cause."""
    index = f"{FOLDER}/meta/CDC.index"
    rows = (root / file(2)).read_bytes()
    match kind:
        case "hole":
            (root / file(2)).rename(root / file(4))
            put_index(root, 4)
            return {("hole", "error", FOLDER, 2)}
        case "hole-at-the-beginning":
            (root / file(1)).unlink()
            return {("hole", "error", FOLDER, 1)}
        case "number-twice":
            put(root, file(2).replace(f"{2:020d}", f"{2:06d}"), rows.decode())
            return {(kind, "error", FOLDER, 1)}
        case "index-ahead":
            put_index(root, 3)
            return {(kind, "error", index, 1)}
        case "index-behind":
            put_index(root, 1)
            return {(kind, "warning", index, 1)}
        case "index-missing":
            (root / index).unlink()
            return {(kind, "warning", FOLDER, 2)}
        case "index-malformed":
            put(root, index, "CDC2.csv")
            return {(kind, "error", index, 1)}
        case "index-malformed-outside":
            put(root, index, f"../../t/{VERSION}/CDC{2:020d}.csv\n")
            return {("index-malformed", "error", index, 1)}
        case "schema-checksum":
            path = damaged_schema(root)
            return {(kind, "error", path, 1), ("schema-unusable", "error", file(1), 2),
                    ("schema-unusable", "error", file(2), 1)}  # fmt: skip
        case "schema-version":
            path = renamed_schema(root)
            return {(kind, "error", path, 1), ("schema-missing", "error", FOLDER, 2)}
        case "schema-not-json":
            path = str(next((root / "s/t/meta").iterdir()).relative_to(root))
            put(root, path, "{")
            return {(kind, "error", path, 1), ("schema-unusable", "error", file(1), 2),
                    ("schema-unusable", "error", file(2), 1)}  # fmt: skip
        case "schema-missing":
            next((root / "s/t/meta").iterdir()).unlink()
            return {(kind, "error", FOLDER, 2)}
        case "metadata-missing":
            (root / "metadata").unlink()
            return {(kind, "error", "metadata", 1)}
        case "bad-metadata":
            put(root, "metadata", '{"checkpoint-ts": "x"}')
            return {(kind, "error", "metadata", 1)}
        case "bad-metadata-nested":
            put(root, "metadata", "[" * 100_000)
            return {("bad-metadata", "error", "metadata", 1)}
        case "above-checkpoint":
            put(root, "metadata", json.dumps({"checkpoint-ts": VERSION + 1}))
            return {(kind, "info", file(1), 1), (kind, "info", file(2), 1)}
        case "empty-file":
            put(root, file(2))
            return {(kind, "error", file(2), 1)}
        case "half-written":
            put(root, file(2), rows + rows[:-3])
            return {(kind, "error", file(2), 1)}
        case "csv-fields":
            put(root, file(2), rows + b'"I","t","s",1\r\n' * 3)
            return {(kind, "error", file(2), 3)}
        case "unknown-file":
            put(root, "s/t/notes.txt")
            return {(kind, "warning", "s/t/notes.txt", 1)}
        case "link":
            (root / "s/up").symlink_to("..")
            return {(kind, "error", "s/up", 1)}
    raise AssertionError(kind)


KINDS = ("hole", "hole-at-the-beginning", "number-twice", "index-ahead", "index-behind", "index-missing",
         "index-malformed", "index-malformed-outside", "schema-checksum", "schema-version", "schema-not-json",
         "schema-missing", "metadata-missing", "bad-metadata", "bad-metadata-nested", "above-checkpoint", "empty-file",
         "half-written", "csv-fields", "unknown-file", "link")  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_fault_is_found_and_nothing_else_is(tmp_path: Path, kind: str) -> None:
    """Each fault gives exactly its own findings, with the path and how many records or files it concerns."""
    root = stored.whole_folder(tmp_path / "feed")
    assert found_by_hand(root) == set()
    wanted = plant(root, kind)
    assert found_by_hand(root) == wanted


@pytest.mark.parametrize("kind", ["hole", "index-behind", "schema-checksum", "above-checkpoint"])
def test_spark_finds_the_same(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Names on the driver and contents on the workers give the findings of both."""
    root = stored.whole_folder(tmp_path / "feed")
    wanted = plant(root, kind)
    assert found(spark, root) == wanted


def test_a_whole_folder_has_no_finding(spark: SparkSession, tmp_path: Path) -> None:
    """Without a planted fault nothing is found, so that the tests above can fail."""
    assert found(spark, stored.whole_folder(tmp_path)) == set()


@pytest.mark.parametrize("tree", TREES)
def test_what_the_real_sink_wrote_has_no_finding(spark: SparkSession, tmp_path: Path, tree: str) -> None:
    """The golden trees, old and new layout, are whole."""
    assert found(spark, stored.unpack(tmp_path) / tree) == set()


def test_partitions_and_dates_are_numbered_apart(spark: SparkSession, tmp_path: Path) -> None:
    """Numbers start again in each folder; a hole is one of its folder alone."""
    put(tmp_path, "metadata", '{"checkpoint-ts":1}')
    put_schema(tmp_path, INT, TEXT)
    row = '"I","t","s",1,"a"\r\n'
    for where, numbers in (("127/2024-01-01", (1,)), ("127/2024-01-02", (1, 3)), ("128/2024-01-01", (1, 2))):
        for n in numbers:
            put_data(tmp_path, row, n, where=f"{FOLDER}/{where}")
        put_index(tmp_path, max(numbers), where=f"{FOLDER}/{where}")
    assert found(spark, tmp_path) == {("hole", "error", f"{FOLDER}/127/2024-01-02", 1)}


def test_the_first_line_says_whether_it_is_whole(spark: SparkSession, tmp_path: Path) -> None:
    """Then come what is missing or wrong; a file above the checkpoint is a note."""
    root = stored.whole_folder(tmp_path / "feed")
    whole = CliRunner().invoke(main, ["fsck", str(root)], obj=spark)
    assert whole.output == f"{root} is whole.\n"
    plant(root, "hole")
    first, *found = CliRunner().invoke(main, ["fsck", str(root)], obj=spark).output.splitlines()
    assert first.startswith(f"{root} is not whole: 1 x hole") and any(line.startswith("error hole ") for line in found)


@pytest.fixture
def command(spark: SparkSession) -> Callable[..., Any]:
    """``command(FOLDER, code)`` runs ``ticdc-lab fsck --json``."""

    def run(folder: Path, code: int) -> Any:
        result = CliRunner().invoke(main, ["fsck", str(folder), "--json"], obj=spark)
        assert result.exit_code == code, result.output
        return json.loads(result.stdout) if code < 2 else result.stderr

    return run


def test_the_command_exits_with_0_for_clean_1_for_findings_2_for_no_folder(
    command: Callable[..., Any], tmp_path: Path
) -> None:
    """Rows above the checkpoint alone are reported and are no fault."""
    root = stored.whole_folder(tmp_path / "feed")
    assert command(root, 0)["counts"] == {}
    put(root, "metadata", json.dumps({"checkpoint-ts": VERSION}))
    assert command(root, 0)["counts"] == {"above-checkpoint": 2}
    put_index(root, 9)
    said = command(root, 1)
    assert said["counts"] == {"above-checkpoint": 2, "index-ahead": 1}
    assert {f["kind"] for f in said["findings"]} == {"above-checkpoint", "index-ahead"}
    assert "no folder" in command(tmp_path / "nowhere", 2)


def test_a_folder_of_another_kind_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """A clean answer for a folder that holds nothing would be a lie."""
    with pytest.raises(SourceError, match="no file of TiCDC's storage sink"):
        fsck(spark, str(tmp_path))
