"""A storage folder that grows: however it grows and wherever a watch of it ends, it finds what an audit finds."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sys
from collections import Counter
from dataclasses import astuple
from pathlib import Path
from unittest.mock import patch
from urllib.request import urlopen

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner
from conftest import ROOT, golden
from pyspark.sql import SparkSession
from stored import VERSION, put, put_data, put_schema, whole_folder
from watched_logs import FORM, audited

import ticdc_lab
from ticdc_lab.audit.guarantees import ONE_CHECKPOINT, checks_possible
from ticdc_lab.cli import main
from ticdc_lab.errors import SourceError
from ticdc_lab.events import FILE_BITS
from ticdc_lab.settings import MATCH, UNKNOWN, Setting, Settings
from ticdc_lab.sources.storage import files_table, listed, local_files, reading_of
from ticdc_lab.sources.storage_layout import METADATA, StoragePlace, Stream, place_of, streams_of
from ticdc_lab.sources.storage_reading import Unreadable
from ticdc_lab.watch import storage
from ticdc_lab.watch.folder import WatchFolder
from ticdc_lab.watch.pages import pages
from ticdc_lab.watch.running import Watch, unsettled
from ticdc_lab.watch.state import Watched, WatchState, absorbed, audited_so_far
from ticdc_lab.watch.storage import PATIENCE, ReadFile, StorageFolder
from ticdc_lab.watch.webhook import payload

sys.path.insert(0, str(ROOT / "tests/sources"))
from s3_server import serving

CSV, CANAL = "storage/small_csv_committs_oldvalue", "storage/small_canal-json"


@pytest.fixture(scope="module")
def trees(tmp_path_factory) -> Path:
    """The golden folders."""
    root = tmp_path_factory.mktemp("trees")
    shutil.unpack_archive(golden("storage_small.tar.gz"), root)
    return root


def files_of(root: Path) -> dict[str, bytes]:
    """What is in a folder, by path."""
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def written(root: Path, files: dict[str, bytes]) -> Path:
    """A folder with these files, too."""
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    return root


def whole(root: Path) -> tuple[pa.Table, Watched, dict[str, int]]:
    """All events of a folder as an audit reads them, how it is watched, and the least commit_ts of each data file."""
    found = listed(local_files(root), str(root), UNKNOWN, by_path=True)
    table = files_table(found)
    reading, dated = reading_of(found, table, settings=UNKNOWN)
    events = pa.Table.from_batches(reading.decoded(table.to_pylist(), images=False), FORM)
    paths = {(r["partition"], r["rank"]): r["path"] for r in table.to_pylist()}
    least: dict[str, int] = {}
    for e in events.select(["partition", "offset", "commit_ts", "kind"]).to_pylist():
        path = paths[e["partition"], e["offset"] >> FILE_BITS] if e["partition"] is not None else ""
        if e["kind"] == "row":
            least[path] = min(least.get(path, e["commit_ts"]), e["commit_ts"])
    return events, Watched(reading.protocol, dated, is_folder=True), least


def named(found: list[dict], streams: dict[int, object]) -> Counter[str]:
    """Findings by the streams, which have other numbers in a folder that grew; offsets are places in files."""

    def number(p: int) -> str:
        return f"<{streams[p]}>"

    told = Counter[str]()
    for f in found:
        message = re.sub(r"partition (\d+)", lambda m: number(int(m[1])), f["message"])
        place = number(f["partition"]), (f["offset"] or 0) & ((1 << FILE_BITS) - 1)
        told[str([f["guarantee"], f["severity"], f["table"], f["commit_ts"], place, message])] += 1
    return told


def audit_of(root: Path) -> tuple[Counter[str], Watched, dict[str, int]]:
    """What an audit of a folder finds, and more of :func:`whole`."""
    events, watched, least = whole(root)
    found = listed(local_files(root), str(root), UNKNOWN, by_path=True)
    return named(audited(events, watched), dict(enumerate(streams_of(found.places)))), watched, least


class Growing:
    """A folder that becomes another one step by step: what is up to a checkpoint is there before it is stated."""

    def __init__(self, root: Path, files: dict[str, bytes], least: dict[str, int], rng: random.Random) -> None:
        self.root, self.files, self.rng = root, files, rng
        places = [p for path in files if isinstance(p := place_of(path), StoragePlace)]
        self.schemas = {p.path: p.version for p in places if p.kind == "schema"}
        self.order = [[p.path for p in own] for s, own in streams_of(places).items() if s.table]
        self.least = least
        self.end = json.loads(files[METADATA])["checkpoint-ts"]
        stamps = sorted({*least.values(), self.end})
        self.todo = [*sorted(rng.sample(stamps[:-1], 4)), self.end]
        self.grow()

    def grow(self, *_: object) -> None:
        """Write what is due."""
        if not self.todo:
            return
        ts, there = self.todo.pop(0), {path for path, version in self.schemas.items() if version <= self.todo_ts()}
        torn = dict[str, bytes]()
        for own in self.order:
            n = max((i + 1 for i, path in enumerate(own) if self.least.get(path, self.end) <= ts), default=0)
            n = min(len(own), n + self.rng.randint(0, 1)) if self.todo else len(own)
            there |= {*own[:n]}
            if n < len(own) and self.rng.random() < 0.3:
                torn[own[n]] = self.files[own[n]][: self.rng.randint(0, len(self.files[own[n]]) - 1)]
        for path in sorted(there):
            written(
                self.root, {path: self.files[path]} if not (self.root / path).exists() or self.is_torn(path) else {}
            )
        written(self.root, torn)
        written(self.root, {METADATA: json.dumps({"checkpoint-ts": ts}).encode()})

    def todo_ts(self) -> int:
        return self.todo[0] if self.todo else self.end

    def is_torn(self, path: str) -> bool:
        return (self.root / path).stat().st_size < len(self.files[path])


def followed(root: Path, growing: Growing, watched: Watched, *, restarts: int) -> tuple[Counter[str], WatchState]:
    """What is found of a folder while it grows, the watch begun again now and then, from what it saved."""
    state, positions, cursor, files = WatchState(), {}, {}, {}
    rng, done, lists = growing.rng, False, 0
    while not done:
        folder = of_clock(root)
        if cursor:
            read = {path: ReadFile(*json.loads(json.dumps(file))) for path, file in files.items()}
            folder.resume(json.loads(json.dumps(cursor)), read)
        else:
            assert folder.detected() is not None
        for _, events in folder.batches(positions, once=False):
            if events is None:
                lists += 1
                done = not growing.todo and lists > 3
                if growing.todo:
                    growing.grow()
                    lists = 0
            else:
                state, _ = absorbed(state, pa.Table.from_batches([events]), watched)
            positions, cursor = dict(folder.positions), folder.cursor()
            files = {path: astuple(file) for path, file in folder.files.items()}
            if done or (restarts and rng.random() < 0.2):
                restarts -= 1
                break
    for _, events in folder.batches(positions, once=True):  # streams without new files hear of a checkpoint later
        state, _ = absorbed(state, pa.Table.from_batches([events]), watched)
    streams = {at.partition: stream for stream, at in folder._streams.items()}
    return named(audited_so_far(state, watched).findings.to_pylist(), streams), state


def planted(files: dict[str, bytes], rng: random.Random) -> dict[str, bytes]:
    """The same folder with some records lost, and some in another order."""
    paths = [p for p in files if "/CDC" in p and files[p].count(b"\n") > 8 and "/meta/" not in p]
    changed = dict(files)
    for path in rng.sample(paths, min(4, len(paths))):
        lines = changed[path].splitlines(keepends=True)
        at = rng.randint(2, len(lines) - 3)
        del lines[at : at + 2]
        lines[at - 1], lines[at] = lines[at], lines[at - 1]
        changed[path] = b"".join(lines)
    return changed


@pytest.mark.parametrize(("tree", "seed"), [(CSV, 1), (CANAL, 4)])
def test_a_folder_that_grows_is_watched_as_it_is_audited(trees, tmp_path, tree, seed):
    """With records that are lost and swapped, files half written for a while, and a watch that begins again."""
    rng = random.Random(seed)
    files = planted(files_of(trees / tree), rng)
    expected, watched, least = audit_of(written(tmp_path / "end", files))
    assert sum(expected.values()) > 3
    growing = Growing(tmp_path / "grows", files, least, rng)
    found, state = followed(tmp_path / "grows", growing, watched, restarts=5)
    assert found == expected
    assert sum(pc.equal(state.facts["fact"], "watermark").to_pylist()) > len(growing.order)


def test_a_file_that_was_read_and_grows_is_read_on(trees, tmp_path):
    """What was stated in between; each record once."""
    files = files_of(trees / CSV)
    path = max((p for p in files if "/CDC" in p and "/meta/" not in p), key=lambda p: (files[p].count(b"\n"), p))
    lines = files[path].splitlines(keepends=True)
    later = {p for p in files if p.startswith(path.rsplit("/", 2)[0]) and p > path and "/meta/" not in p}
    first = {p: c for p, c in files.items() if p not in later} | {path: b"".join(lines[: len(lines) // 2])}
    root = written(tmp_path / "grows", first)
    end = written(tmp_path / "end", first | {path: files[path]})
    folder, events, n = of_clock(root), [], 0
    assert folder.detected() is not None
    for _, batch in folder.batches({}, once=False):
        if batch is not None:
            events.append(pa.Table.from_batches([batch]))
            continue
        n += 1
        if n == 1:
            written(root, {path: files[path]})
        elif n == 4:
            break
    read = pa.concat_tables(events)
    rows, expected = (t.filter(pc.equal(t["kind"], "row")) for t in (read, whole(end)[0]))
    assert sorted(rows["change_hash"].to_pylist()) == sorted(expected["change_hash"].to_pylist())
    assert read["error_class"].null_count == read.num_rows


def of_clock(root: Path) -> StorageFolder:
    """A folder that is listed again each time that it gives nothing."""
    clock = [0.0]
    return StorageFolder(str(root), UNKNOWN, now=lambda: clock[0], sleep=lambda _: clock.__setitem__(0, clock[0] + 1e6))


def of_passes(root: Path, *steps) -> tuple[StorageFolder, list[dict]]:
    """What a folder gives while something is done to it between its listings, each in turn."""
    folder, found, todo = of_clock(root), list[dict](), list(steps)
    assert folder.detected() is not None
    for _, batch in folder.batches({}, once=False):
        if batch is not None:
            found += batch.to_pylist()
        elif not todo:
            return folder, found
        else:
            todo.pop(0)()
    raise AssertionError


def test_a_watch_goes_on_from_the_settings_that_an_earlier_version_saved(trees, tmp_path):
    """By names of their own; what was detected from the files then is not reported again."""
    root = written(tmp_path, files_of(trees / CSV))
    folder = of_clock(root)
    assert folder.detected() is not None
    cursor = json.loads(json.dumps(folder.cursor()))
    assert {s["name"]: s["value"] for s in cursor["reading"]["settings"]} == {
        "sink.csv.null": r"\N", "sink.csv.binary-encoding-method": "hex"
    }  # fmt: skip
    cursor["reading"]["settings"] = {
        "csv_null": "-", "csv_binary_encoding_method": "base64", "csv_delimiter": None, "date_separator": "auto",
        "csv_include_commit_ts": True,
    }  # fmt: skip
    folder = of_clock(root)
    folder.resume(cursor, {})
    again = json.loads(json.dumps(folder.cursor()))["reading"]["settings"]
    assert {s["name"]: s["value"] for s in again} == {
        "sink.csv.null": "-", "sink.csv.binary-encoding-method": "base64", "sink.csv.include-commit-ts": True,
    }  # fmt: skip


def test_what_cannot_be_checked_is_named(trees, tmp_path):
    """A file that is replaced, a late one, an unknown one, and numbers that are missing: counted, each once."""
    files = files_of(trees / CSV)
    own = sorted(p for p in files if "orders/470603993604161536/CDC" in p)
    first, second, third = own
    others = {p: c for p, c in files.items() if not re.match(r"shop/orders/\d+/CDC", p)}
    index_alone = min(p for p in files if "shop/orders/" in p and "/CDC" in p and "meta" not in p)
    root = written(tmp_path, others | {first: files[first]})

    def nothing() -> None:
        pass

    steps = [
        lambda: written(root, {third: files[third], "shop/orders/notes.txt": b"?"}), *[nothing] * (PATIENCE + 1),
        lambda: written(root, {second: files[second]}), nothing,
        lambda: written(root, {first: files[first].replace(b"shop", b"shoq")}), nothing, nothing,
    ]  # fmt: skip
    folder, found = of_passes(root, *steps)
    refused = {e["error_class"]: e["reason"] for e in found if e["error_class"]}
    assert {c: r.split(":")[0] for c, r in refused.items()} == {
        "late-file": second, "replaced-file": first, "unknown-file": "shop/orders/notes.txt",
    }  # fmt: skip
    assert len([e for e in found if e["error_class"]]) == 3
    assert [of.path for of in folder.lost_files] == [index_alone, second] and sum(folder.lost.values()) == 2
    counted = absorbed(WatchState(), pa.Table.from_pylist(found, FORM), Watched("csv", is_folder=True))[1]
    assert counted.quarantined == dict.fromkeys(refused, 1)


@pytest.mark.parametrize("written_anew", ["with others", "longer"])
def test_a_file_that_cannot_be_read_again_is_not_called_replaced(trees, tmp_path, monkeypatch, written_anew):
    """What happened is the reason, after some listings; if it can be read meanwhile, it is judged as any other."""
    root, read = written(tmp_path, files_of(trees / CSV)), storage.read_inside
    path = max(p for p in files_of(root) if "orders/470603993773506560/CDC" in p)
    before = files_of(root)[path].splitlines(keepends=True)
    after = {"with others": before[::-1], "longer": [*before, before[-1]]}[written_anew]

    def fails(root, name):
        if name == path:
            raise storage.Unreadable("unreadable-file", "cannot be read: Input/output error")
        return read(root, name)

    def anew() -> None:
        written(root, {path: b"".join(after)})
        monkeypatch.setattr(storage, "read_inside", fails)

    for back, classes in (
        (2, ["replaced-file"] * (written_anew == "with others")),
        (PATIENCE + 2, ["unreadable-file"]),
    ):
        (root / path).write_bytes(b"".join(before))
        todo = [anew, *[lambda: None] * back, lambda: monkeypatch.setattr(storage, "read_inside", read)]
        _, found = of_passes(root, *todo, lambda: None)
        refused = [e for e in found if e["error_class"]]
        assert [e["error_class"] for e in refused] == classes
        said = "the file was read, then written again, and now cannot be read: Input/output error"
        assert all(said in e["reason"] for e in refused if e["error_class"] == "unreadable-file")


def test_a_file_without_an_end_holds_its_stream_up_for_a_while(trees, tmp_path):
    """Its checkpoint is not stated meanwhile; then it is read as far as it goes, and the rest is in quarantine."""
    files = files_of(trees / CSV)
    path = max(p for p in files if "orders/470603993773506560/CDC" in p)
    root = written(tmp_path, files | {path: files[path][:-30]})
    for n, expected in ((2, 0), (PATIENCE + 2, 1)):
        folder, found = of_passes(root, *[lambda: None] * n)
        at = folder._streams[Stream("shop", "orders")].partition
        of = [e for e in found if e["partition"] == at]
        assert sum(e["error_class"] == "half-written" for e in of) == expected
        assert sum(e["kind"] == "watermark" for e in of) == expected


def test_a_checkpoint_that_is_just_written_is_read_again(trees, tmp_path):
    """One that stays damaged is in quarantine, once; one that falls back is a finding."""
    files = files_of(trees / CSV)
    root, ts = written(tmp_path, files), json.loads(files[METADATA])["checkpoint-ts"]
    bad, back = {METADATA: b'{"checkp'}, {METADATA: json.dumps({"checkpoint-ts": ts - 5}).encode()}
    _, found = of_passes(root, lambda: written(root, bad), lambda: written(root, back), lambda: None)
    assert not [e for e in found if e["error_class"]]
    after = absorbed(WatchState(), pa.Table.from_pylist(found, FORM), Watched("csv", is_folder=True))[0]
    said = audited_so_far(after, Watched("csv", is_folder=True)).findings["guarantee"].to_pylist()
    assert {*said} == {"watermarks_are_monotone"}
    written(root, files)
    _, found = of_passes(root, lambda: written(root, bad), *[lambda: None] * 4)
    assert [e["error_class"] for e in found if e["error_class"]] == ["bad-metadata"]


def test_a_checkpoint_that_cannot_be_read_is_named_once(trees, tmp_path, monkeypatch):
    """Not in the moment in which it is written; and again if it comes back and goes away."""
    root, read, faults = written(tmp_path, files_of(trees / CSV)), storage.read_inside, list[int]()

    def refuses(at, path):
        if path == METADATA and faults:
            raise Unreadable("unreadable", "Permission denied")
        return read(at, path)

    monkeypatch.setattr(storage, "read_inside", refuses)
    for fails, n in (([1], 0), ([1] * 4, 1), ([1, 1, 0, 1, 1], 2)):
        _, found = of_passes(root, *[lambda f=f: faults.__setitem__(slice(None), [1] * f) for f in (*fails, 0)])
        bad = [(e["error_class"], e["reason"]) for e in found if e["error_class"]]
        assert bad == [("unreadable", "metadata: Permission denied")] * n


def test_a_file_whose_messages_are_not_read_again_is_asked_for_later(trees, tmp_path):
    """The status counts findings without their messages; nothing is taken for a file that has gone."""
    root = written(tmp_path / "logs", planted(files_of(trees / CSV), random.Random(5)))
    evidence = StorageFolder.evidence

    def away(self, row):
        raise Unreadable("unreadable", "Input/output error")

    def without(self, places):
        with patch.object(storage.Reading, "content", away):
            return evidence(self, places)

    with patch.object(StorageFolder, "evidence", without):
        watch = Watch(str(root), str(tmp_path / "state"), once=True)
        watch.run()
    of_rows = [f for f in watch.findings.values() if f.guarantee == "row_images_chain"]
    assert of_rows and watch.view.undocumented >= len(of_rows)
    again = Watch(str(root), str(tmp_path / "again"), once=True)
    again.run()
    assert again.view.undocumented == 0


def test_a_folder_that_is_not_mounted_is_waited_for(trees, tmp_path):
    """All its files are gone at once: nothing is forgotten, and nothing is read twice when they come back."""
    root = written(tmp_path / "logs", files_of(trees / CSV))
    folder, _ = of_passes(root)
    known = dict(folder.files)
    (root / METADATA).rename(tmp_path / "aside")
    with pytest.raises(SourceError, match="does not answer"):
        folder._listing()
    (tmp_path / "aside").rename(root / METADATA)
    assert [b for _, b in folder.batches(folder.positions, once=True)] == [] and folder.files.keys() == known.keys()


def test_a_watch_and_an_audit_judge_the_same_of_its_one_checkpoint(trees, tmp_path):
    """Neither calls it kept that all partitions have the watermarks: a folder has no partitions."""
    root = written(tmp_path / "logs", files_of(trees / CSV))
    name, asked = (
        "resolved_events_on_all_partitions",
        ["watch", str(root), "--state", str(tmp_path / "state"), "--once"],
    )
    told = json.loads(CliRunner().invoke(main, [*asked, "--json"]).stdout)
    possible = checks_possible("csv", of_storage=True)
    assert told["not_watched"][name] == possible[name] == ONE_CHECKPOINT
    assert not checks_possible("canal-json")[name]


def test_the_command_watches_a_folder(trees, tmp_path):
    """Its evidence is a folder that an audit reads to the same finding; the next run continues."""
    files = files_of(trees / CSV)
    root = written(tmp_path / "logs", planted(files, random.Random(5)))
    state = tmp_path / "state"
    ran = CliRunner().invoke(main, ["watch", str(root), "--state", str(state), "--once", "--json"])
    told = json.loads(ran.stdout)
    assert ran.exit_code == 1 and told["findings"] and "resolved_events_on_all_partitions" in told["not_watched"]
    first = next(f for f in told["findings"] if f["guarantee"] == "row_images_chain")
    shown = CliRunner().invoke(main, ["watch", "show", str(first["number"]), "--state", str(state)]).stdout
    kept = state / "findings" / str(first["number"]) / "storage"
    assert f"ticdc-lab audit {kept}" in shown and first["key"]
    again = Watch(str(kept), str(tmp_path / "again"), once=True)
    again.run()
    assert first["key"] in [f.key for f in again.findings.values() if f.guarantee == "row_images_chain"]
    before = told["findings"]
    ran = CliRunner().invoke(main, ["watch", str(root), "--state", str(state), "--once", "--json"])
    assert json.loads(ran.stdout)["findings"] == before


def test_a_folder_in_an_object_store_is_the_one_of_this_machine(trees, tmp_path, monkeypatch):
    """Through the project's own access; its credentials are in no state."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "hidden")
    here = Watch(str(trees / CSV), str(tmp_path / "here"), once=True)
    here.run()
    with serving(trees) as store:
        there = Watch(store.url(CSV, user="someone:s3cr3t"), str(tmp_path / "there"), once=True)
        there.run()
        again = Watch(store.url(CSV, user="someone:s3cr3t"), str(tmp_path / "there"), once=True)
        again.run()
    assert there.view.counts == here.view.counts == again.view.counts and there.view.counts.rows > 1000
    assert unsettled(there.findings.values()) == unsettled(here.findings.values())
    assert b"s3cr3t" not in b"".join(p.read_bytes() for p in (tmp_path / "there").iterdir())
    with pytest.raises(SourceError, match="contains the files of 4 changefeeds"):
        Watch(str(trees / "storage"), str(tmp_path / "above"))


@pytest.mark.parametrize("written_anew", ["with others", "longer", "as it was"])
@pytest.mark.parametrize("version", ["earlier", "this"])
def test_an_object_that_is_written_anew_is_named(trees, tmp_path, monkeypatch, written_anew, version):
    """By its time and its content; one that has the same content is not replaced, nor is one of whose time a state of
    an earlier version knows nothing.
    """
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "hidden")
    root = written(tmp_path / "bucket" / "logs", files_of(trees / CSV))
    path = max(root.rglob("CDC*.csv"))  # the last one of its stream
    before = path.read_bytes().splitlines(keepends=True)
    after = {"with others": before[::-1], "longer": [*before[::-1], before[0]], "as it was": before}[written_anew]
    says = StorageFolder._say_read

    def less(self, path, file):
        says(self, path, storage.replace(file, changed_ns=None, crc=None))

    with serving(tmp_path / "bucket") as store:
        counts = []
        for time_s in (3e9, 4e9, 4e9):
            known = less if version == "earlier" and not counts else says
            monkeypatch.setattr(StorageFolder, "_say_read", known)
            watch = Watch(store.url("logs", user="someone:s3cr3t"), str(tmp_path / "state"), once=True)
            watch.run()
            counts.append(watch.view.counts)
            path.write_bytes(b"".join(after))
            os.utime(path, (time_s, time_s))  # a store's clock counts seconds
    named = {"replaced-file": 1}
    noticed = written_anew == "longer" or (written_anew == "with others" and version == "this")
    assert counts[0].quarantined == {} and counts[0].rows == counts[1].rows == counts[2].rows
    assert counts[1].quarantined == counts[2].quarantined == (named if noticed else {})


def test_rows_of_a_folder_have_the_handle_key_that_its_schema_files_define(tmp_path):
    """Without a primary key: what happens to one row is found in both forms, also after a restart, and named by key."""
    ddl = "CREATE TABLE s.t (a INT NOT NULL, b INT NOT NULL, v INT, UNIQUE x (a, b), UNIQUE y (b))"
    columns = [{"ColumnName": n, "ColumnType": "INT", "ColumnPrecision": "11"} for n in "abv"]
    root = tmp_path / "sink"
    put_schema(root, *columns, Query=ddl)
    put_data(root, f'"I","t","s",{VERSION + 1},1,7,0\n')
    for number in (1, 2):
        if number == 2:
            put_data(root, f'"I","t","s",{VERSION + 6},1,7,1\n', number)
        put(root, METADATA, json.dumps({"checkpoint-ts": VERSION + 5 * number}))
        Watch(str(root), str(tmp_path / "state"), once=True).run()
    found = WatchFolder(tmp_path / "state", writes=False).findings()
    assert [(f.guarantee, f.key) for f in found.values()] == [("row_images_chain", "b=7")]


def test_what_the_bytes_of_csv_show_counts_before_the_file_of_the_changefeed(tmp_path):
    """Rows are read as they are written, also after a restart; the wrong setting is a finding."""
    root = whole_folder(tmp_path / "sink")
    wrong = Settings((Setting("sink.csv.delimiter", "|", "file", evidence="feed.toml"),))
    for n in (3, 4):
        watch = Watch(str(root), str(tmp_path / "state"), once=True, changefeed=wrong)
        watch.run()
        assert watch.view.counts.rows == n and not watch.view.counts.quarantined
        found = WatchFolder(tmp_path / "state", writes=False).findings().values()
        assert [f.guarantee for f in found] == [MATCH] and "feed.toml" in next(iter(found)).message
        put_data(root, f'"I","t","s",{VERSION + 14},4,"a"\n', 3)


MISSING = {
    "shop/orders/470603993604161536/*/CDC*2.json": (1, 2),  # the numbers of the others show it
    "shop/orders/470603993604161536/*/CDC*3.json": (1, 0),  # its index file names it
    "shop/orders/470603993604161536/*/CDC*.json": (3, 0),  # an index file without any data file
    "shop/users/*/*/CDC*.json": (1, 0),  # the only one of its table
    "shop/parted/*/127/*/CDC*1.json": (0, 0),  # it may have expired
}
"""Files, how many are missing, and how many findings they may explain."""


@pytest.mark.parametrize("gone", MISSING)
def test_a_missing_data_file_is_named_as_by_an_audit(trees: Path, tmp_path: Path, gone: str) -> None:
    """What it may explain is a warning that names it, also after a restart; `status` counts it beside its table."""
    root, state, (lost, found) = shutil.copytree(trees / CANAL, tmp_path / "gone"), str(tmp_path / "s"), MISSING[gone]
    paths = [path.relative_to(root).as_posix() for path in root.glob(gone)]
    for path in paths:
        (root / path).unlink()
    for _ in range(2):
        watch = Watch(str(root), state, once=True)
        watch.run()
        assert sum(of.n for of in watch._state.lost_files) == lost == sum(watch._lost.values())
        kept = unsettled(watch.findings.values())
        assert [(f.guarantee, f.severity, f.table) for f in kept] == found * [
            ("row_images_chain", "warning", "shop.orders")
        ]
        assert all(f.message.endswith(f"; it may lie in {paths[0]}, which is missing") for f in kept)
    said = CliRunner().invoke(main, ["watch", "status", "--state", state]).stdout
    assert ("missing in shop/" in said) == bool(lost) and "offset 1" not in said
    assert "read up to shop/orders/470603993773506560/" in said


def _zeroed(raw: bytes) -> bytes:
    """What a crash of the machine leaves."""
    return raw[: len(raw) // 2] + bytes(len(raw) - len(raw) // 2)


def _with_another_line(raw: bytes) -> bytes:
    lines = raw.splitlines(keepends=True)
    lines[len(lines) // 2] = b"#" * 40 + b"\n"
    return b"".join(lines)


DAMAGE = {
    "empty": lambda _: b"", "cut": lambda raw: raw[: len(raw) * 2 // 3], "zeroed": _zeroed, "a line": _with_another_line
}  # fmt: skip


@pytest.mark.parametrize("tree", [CANAL, CSV])
@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_data_file_is_treated_as_by_an_audit(
    spark: SparkSession, trees: Path, tmp_path: Path, tree: str, how: str
) -> None:
    """What it may explain is a warning that names it; all that can be read of it is read, the rest is in quarantine,
    and the notes of both name the file once.
    """
    root = shutil.copytree(trees / tree, tmp_path / "damaged")
    path = min(p for p in root.glob("shop/orders/470603993604161536/**/CDC*1.*") if p.suffix != ".index")
    path.write_bytes(DAMAGE[how](path.read_bytes()))
    own, log = path.relative_to(root).as_posix(), ticdc_lab.open(str(root), spark=spark)
    answer, counts = log.audit(), log.change_log.counts
    audited = Counter((f["guarantee"], f["severity"], f["table"], f["commit_ts"]) for f in answer.as_dict()["findings"])
    for _ in range(2):
        watch = Watch(str(root), str(tmp_path / "state"), once=True)
        watch.run()
        found = unsettled(watch.findings.values())
        assert Counter((f.guarantee, f.severity, f.table, f.commit_ts) for f in found) == audited
        assert all(f.severity == "warning" and own in f.message for f in found) and bool(found) == (how != "empty")
        assert sum(watch.view.counts.quarantined.values()) == counts.quarantined > 0
        assert watch.view.counts.messages == counts.messages
        [said], [told] = ([s for s in sentences if own in s] for sentences in (log.limits, watch.view.notes))
        assert said == told and said.startswith(f"1 data file was not read in full: {own}.")


@pytest.mark.parametrize("tree", [CANAL, CSV])
def test_a_finding_of_a_folder_names_the_file_and_the_line(
    spark: SparkSession, trees: Path, tmp_path: Path, tree: str
) -> None:
    """An audit and a watch print the same ones, and each line is the one of the change; no offset that no file has."""
    root = shutil.copytree(trees / tree, tmp_path / "logs")
    path = min(p for p in root.glob("shop/orders/470603993604161536/**/CDC*1.*") if p.suffix != ".index")
    path.write_bytes(DAMAGE["cut"](path.read_bytes()))
    state, run = str(tmp_path / "state"), CliRunner().invoke
    assert run(main, ["watch", str(root), "--state", state, "--once"]).exit_code == 1
    said = [
        run(main, words, obj=spark).stdout
        for words in (
            ["audit", str(root)], ["watch", "findings", "--state", state], ["audit", str(root), "--messages-of", "1"],
            ["watch", "show", "1", "--state", state],
        )
    ]  # fmt: skip
    assert not any(re.search(r"offset \d", text) for text in said)
    named = [re.findall(r"(shop/orders/\S+) line (\d+)", text) for text in said]
    assert named[0] == named[1] and len(named[0]) == 1 and named[2] == named[3] and len(named[2]) == 3
    times = re.findall(r"commit_ts (\d+)", said[3])
    for (file, line), ts in zip(named[3][1:], times[-2:], strict=True):
        assert ts.encode() in (root / file).read_bytes().split(b"\n")[int(line) - 1]
    told = json.loads(run(main, ["watch", "findings", "--state", state, "--json"]).stdout)["findings"]
    assert f"{' line '.join(named[0][0])}" == told[0]["place"]
    folder = WatchFolder(state, writes=False)
    sent = payload(told[0]["guarantee"], [folder.findings()[told[0]["number"]]], state)["alerts"][0]["annotations"]
    with pages(Watch(str(root), state), "127.0.0.1:0") as at, urlopen(f"http://{at}/findings", timeout=30) as page:
        served = json.loads(page.read())["findings"]
    assert served[0]["place"] == sent["place"] == told[0]["place"]


def test_an_index_file_left_before_other_files_names_what_is_missing(
    spark: SparkSession, trees: Path, tmp_path: Path
) -> None:
    """As an audit counts it, at once: these data files come no more; whether retention took them is not known."""
    root = shutil.copytree(trees / CANAL, tmp_path / "gone")
    versions = sorted({p.parts[-3] for p in root.glob("shop/orders/*/*/CDC*.json")})
    for path in root.glob(f"shop/orders/{versions[0]}/*/CDC*.json"):
        path.unlink()
    lost = [
        of for of in ticdc_lab.open(str(root), spark=spark).change_log.lost_files if of.path.startswith("shop/orders/")
    ]
    folder, found = of_passes(root)
    assert [(of.path, of.n) for of in folder.lost_files] == [(of.path, of.n) for of in lost] and lost[0].n > 0
    assert sum(e["kind"] == "row" and e["table_name"] == "orders" for e in found) > 10


def test_a_first_file_that_is_missing_is_named_whatever_the_number_before_it(trees: Path, tmp_path: Path) -> None:
    """TiCDC numbers the files of each folder from 1."""
    root = shutil.copytree(trees / CANAL, tmp_path / "gone")
    [gone] = root.glob("shop/orders/470603993604161536/*/CDC*1.json")
    gone.unlink()
    folder, _ = of_passes(root, *[lambda: None] * (PATIENCE + 1))
    assert [of.path for of in folder.lost_files] == [gone.relative_to(root).as_posix()]


def test_an_index_file_names_what_is_still_being_written(trees: Path, tmp_path: Path) -> None:
    """Its data file comes in a later listing: nothing is missing then; one that does not come is, after a while."""
    root = shutil.copytree(trees / CANAL, tmp_path / "late")
    [last] = root.glob("shop/orders/470603993604161536/*/CDC*3.json")
    content, now = last.read_bytes(), [0.0]
    for comes in (True, False):
        last.unlink()

        def sleep(_: float) -> None:
            now[0] += 10.0

        folder = StorageFolder(str(root), now=lambda: now[0], sleep=sleep)
        folder.detected()
        lost = []
        for n, _ in enumerate(folder.batches({}, once=False)):
            lost.append(folder.lost_files)
            if comes and n == 10:
                last.write_bytes(content)
            if n == 60:
                break
        assert (lost[0], bool(lost[-1])) == ((), not comes)
        assert (last.relative_to(root).as_posix() in folder.files) == comes
        last.write_bytes(content)


def test_a_schema_file_that_is_missing_is_named(trees: Path, tmp_path: Path) -> None:
    """Nothing that it would define is a finding; when it comes, it is not missing any more."""
    root, state = shutil.copytree(trees / CANAL, tmp_path / "gone"), str(tmp_path / "state")
    [gone] = root.glob("shop/orders/meta/schema_470603993604161536_*.json")
    content = gone.read_bytes()
    for is_gone in (True, False):
        gone.unlink() if is_gone else gone.write_bytes(content)
        watch = Watch(str(root), state, once=True)
        watch.run()
        named = any("shop/orders/meta/schema_470603993604161536_*.json" in note for note in watch.view.notes)
        assert named == is_gone and not (is_gone and watch.findings)  # then its DDL is late
