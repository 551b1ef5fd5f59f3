"""What a terminal shows: tables that fit it, nothing of a log taken for markup, progress on one line."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pandas as pd
from conftest import golden

from ticdc_lab.answers.answer import Answer, as_html, as_text
from ticdc_lab.answers.terminal import aligned
from ticdc_lab.errors import ContractError
from ticdc_lab.report.page import text as page_text
from ticdc_lab.widgets.problem import Problem

ROOT = Path(__file__).resolve().parents[2]
NARROW = 60


def test_a_cell_is_text_and_breaks_where_the_terminal_ends() -> None:
    """Wide letters take two columns; what looks like markup or moves a cursor is none."""
    said = aligned(["table", "value"], [["x" * 50, "[bold]a[/bold]"], ["漢字", "y\x1b[31m"]], width=40)
    lines = said.splitlines()
    assert max(map(len, lines)) <= 40 and "[bold]a[/bold]" in said and "\x1b" not in said
    assert "".join(line.split()[0] for line in lines if line.startswith("x")) == "x" * 50


def test_no_terminal_breaks_no_line() -> None:
    """A pipe gets each row as one line."""
    assert aligned(["a", "b"], [["x" * 500, "1"]]).splitlines()[1] == "x" * 500 + "  1"


def test_beside_a_tso_stands_its_time() -> None:
    """The day is reported once where it is one; what is no TSO has none; an empty frame keeps its head."""
    frame = pd.DataFrame({"commit_ts": [470603993791332352, None, 0], "n": [1, 2, 3]}).astype("Int64")
    assert as_text(frame).splitlines()[:2] == [
        "commit_ts           UTC 2026-11-20  n", "470603993791332352  21:56:08.308    1",
    ]  # fmt: skip
    days = as_text(pd.DataFrame({"resolved_ts": [470603993791332352, 470582849191332352]}))
    assert days.splitlines()[0].split() == ["resolved_ts", "UTC"] and "2026-11-19 23:31:48.060" in days
    assert as_text(frame.head(0)) == "commit_ts  n"


def test_a_narrow_terminal_is_not_overrun() -> None:
    """Of a whole command: its progress is reported, and a timestamp is whole, wherever its line ends."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, NARROW, 0, 0))
    command = [
        sys.executable,
        "-m",
        "ticdc_lab.cli",
        "watermarks",
        str(golden("messages_open-protocol_small.jsonl.gz")),
    ]
    env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")} | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command, cwd=ROOT, env=env | {"TERM": "xterm"}, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    while piece := _read(ours):
        shown += piece
    assert process.wait(60) == 0
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())
    assert re.search("[\u2800-\u28ff] decoding open-protocol", text), (
        "the seconds come after 0.3 s, which it may not take"
    )
    rows = re.findall(r"^shop +\w+ +\d+ +(\d+) +[\d:.]+ +(\d+)", text, re.MULTILINE)
    assert len(rows) == 4 and {len(ts) for row in rows for ts in row} == {18}


def _read(terminal: int) -> bytes:
    """What was written; empty where no one writes any more."""
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""


def test_a_control_character_in_a_value_is_seen() -> None:
    """A NUL byte in a name or a value is an escape in text, HTML and pages, not nothing."""
    frame = pd.DataFrame({"name": ["a\x00b", "line\nend"]})
    assert "a\\x00b" in as_text(frame) and "line end" in as_text(frame)
    assert "a\\x00b" in as_html(frame) and page_text("a\x00b\nc") == "a\\x00b\nc"


def test_beside_each_tso_of_a_sentence_stands_its_time() -> None:
    """In the answer, its limits and its details, and in an error; once where it is there."""
    said, clock = "a row at commit_ts 470603993791332352", "2026-11-20 21:56:08.308 UTC"
    answer = Answer("a", "b", f"{said}.", limits=(f"{said} ({clock})",), details=[f"{said}, {said}"])
    assert answer.finding == f"{said} ({clock})." and answer.limits == (f"{said} ({clock})",)
    assert answer.details == [f"{said} ({clock}), {said} ({clock})"] and Problem("a").message == "a"
    assert Problem.of(ContractError(said, hint="c")).message == f"{said} ({clock})"
