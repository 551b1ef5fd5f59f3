"""A full disk is reported in words, and what is written is whole or not there."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import ROOT

from ticdc_lab.cli import main
from ticdc_lab.codecs.kernel import native
from ticdc_lab.codecs.kernel.jit import kernel
from ticdc_lab.errors import SourceError, whole_files
from ticdc_lab.errors.whole_files import bare_path, room_for, write_whole
from ticdc_lab.report.page import page

PD = str(ROOT / "data" / "pd_reference.jsonl.gz")


def full(*_: Any, **__: Any) -> None:
    """What a write to a full disk raises."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_page_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page of before stays, nothing lies beside it, and with room it is written."""
    target = tmp_path / "report.html"
    write_whole(target, "before")
    with monkeypatch.context() as m:
        m.setattr(Path, "replace", full)
        with pytest.raises(SourceError, match=r"No space is left.*report\.html"):
            write_whole(target, "after")
    assert target.read_text() == "before" and [p.name for p in tmp_path.iterdir()] == ["report.html"]
    write_whole(target, "after")
    assert target.read_text() == "after"


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_place_that_may_not_be_written_is_named_and_no_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """As on a device that is read-only; what cannot be read elsewhere is another error."""

    def refuse(path: Path, *_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number), str(path))

    for name in ("write_text", "unlink"):
        monkeypatch.setattr(Path, name, refuse)
    with pytest.raises(SourceError, match=rf"^Cannot write {tmp_path}/r\.html: {os.strerror(number)}\."):
        write_whole(tmp_path / "r.html", "x")
    with pytest.raises(OSError, match="elsewhere"), room_for(tmp_path / "r.html"):
        refuse(Path("/elsewhere/log.jsonl"))


def test_a_device_or_a_pipe_is_written_to_and_a_link_stays_one(tmp_path: Path) -> None:
    """``--out /dev/null`` of a root user would else put a file in its place."""
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_whole(tmp_path / "pipe", "x")
    assert os.read(reader, 9) == b"x" and not (tmp_path / "pipe").is_file()
    os.close(reader)
    (tmp_path / "real").write_text("before")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_whole(tmp_path / "link", "after")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "after"


@pytest.mark.parametrize(
    "text", [f"[Errno {errno.EFBIG}] File too large", "java.io.IOException: No space left on device"]
)
def test_a_folder_begun_on_a_full_disk_is_removed(text: str, tmp_path: Path) -> None:
    """No matter what passed the system's error on; a folder that was there before is left as it is."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()

    def begin(folder: Path) -> None:
        with room_for(folder):
            folder.mkdir(exist_ok=True)
            (folder / "part").write_text("half")
            raise RuntimeError(text)

    for folder in (old, new):
        with pytest.raises(SourceError, match="No space is left"):
            begin(folder)
    assert not new.exists() and (old / "part").exists()


def test_a_lake_that_found_no_room_is_kept(tmp_path: Path) -> None:
    """What ingest has written whole stays, and continues."""
    lake = tmp_path / "lake"

    def begin() -> None:
        with room_for(lake, keep=True):
            lake.mkdir()
            full()

    with pytest.raises(SourceError, match="what was written whole stays"):
        begin()
    assert lake.is_dir()


@pytest.mark.parametrize("out", ["no/such/x", "folder", "file/x"])
@pytest.mark.parametrize("words", [["watch", "rules"], ["watch", "dashboard"], ["pd", "replay", PD]], ids=" ".join)
def test_a_place_for_a_page_that_is_none_is_refused_alike(
    words: list[str], out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By every command that writes one file; nothing is made on the way."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(main, [*words, "--out", out])
    why = {"no/such/x": "does not exist", "folder": "it is a folder", "file/x": "is a file, no folder"}[out]
    assert found.exit_code == 2 and f"Cannot write {out}: " in found.output and why in found.output, found.output
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["file", "folder"]


def test_a_kernel_runs_where_its_code_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache without room keeps no one from an answer."""
    monkeypatch.setattr(native, "folder", lambda: tmp_path)
    monkeypatch.setattr(Path, "write_bytes", full)
    assert one_more(1) == 2
    assert not [*tmp_path.iterdir()]


@kernel
def one_more(n: int) -> int:
    """Return the next number."""
    return n + 1


def test_another_error_goes_through(tmp_path: Path) -> None:
    """Only a full disk is reported it."""
    with pytest.raises(KeyError), room_for(tmp_path / "x"):
        raise KeyError("x")
    assert whole_files._is_full(OSError(errno.EDQUOT, "quota"))


def test_a_page_says_which_scripts_may_run_in_it() -> None:
    """Its own, by their hashes, and no question is asked."""
    found = page("<script>alert(1)</script>", lead="x", sections=[])
    policy = found.split('Content-Security-Policy" content="')[1].split('"')[0]
    assert "default-src 'none'" in policy and policy.count("'sha256-") == 2
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0] and "<script>alert" not in found


def test_a_path_that_no_file_system_takes_is_refused_in_words() -> None:
    """As text that was pasted into the field of a source: its beginning is reported, and how long it is."""
    for path in ("a" * 300, "/tmp/" + "é" * 200 + "/x.jsonl", "/ab" * 2000):
        with pytest.raises(SourceError, match=r"is too long: [\d,]+ characters"):
            bare_path(path)
    assert bare_path("s3://" + "b" * 300) and bare_path("a" * 255)
