"""The csv kernel: what an encoder writes comes back in every setting, and damage is met without a wrong index."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import csv_made as made
import numpy as np
import pytest

from ticdc_lab.codecs.csv import Records, records_among, terminator_of
from ticdc_lab.codecs.csv_fields import FieldsOfFile, RecordShape, place
from ticdc_lab.codecs.kernel import columns as kernel_columns
from ticdc_lab.codecs.kernel.state import State, fresh_state
from ticdc_lab.codecs.table_file import Cut, TableColumn, TableFile
from ticdc_lab.settings import UNKNOWN
from ticdc_lab.settings.file import given_settings


def test_what_was_encoded_is_decoded() -> None:
    """Every value of every change comes back: quotes, escapes, line ends, labels, binary, NULL beside null texts."""
    for seed in range(300):
        r = Random(seed)
        settings = made.settings(r)
        text, meant = made.made_file(r, settings)
        rows = made.decoded(text.encode(), settings)
        assert [row["reason"] for row in rows if row["error_class"]] == [], (seed, settings, text)
        assert [made.change_of(row) for row in rows] == meant, (seed, settings, text)


def test_a_damaged_file_gives_events_and_reasons_and_loses_no_message() -> None:
    """No matter what a byte is changed to, each message is an event or has a class and a reason."""
    rejected = 0
    for seed in range(500):
        r = Random(seed)
        settings = made.settings(r)
        raw = made.broken(made.made_file(r, settings)[0].encode(), r)
        for row in made.decoded(raw or b"x", settings):
            assert (row["kind"] == "row") != bool(row["error_class"] and row["reason"])
            rejected += row["error_class"] is not None
    assert rejected > 50


def test_no_index_leaves_its_array() -> None:
    """Compiled code checks no index; the same code interpreted, over arrays that do, meets none outside."""
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("csv_made.py"), "3", "60"],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2_000:]
    whole, bad = map(int, done.stdout.split())
    assert whole > 50 and bad > 10


@pytest.mark.parametrize(
    ("line", "shape"),
    [
        ("I,t,s,1,2", (False, False, False)),
        ("I,t,s,9,1,2", (True, False, False)),
        ("I,t,s,true,1,2", (False, True, False)),
        ("I,t,s,9,false,1,2", (True, True, False)),
        ('I,t,s,9,false,"h",1,2', (True, True, True)),
        ('I,t,s,9,"h",1,2', (True, False, True)),
    ],
)
def test_the_optional_fields_are_told_from_the_first_record(line: str, shape: tuple[bool, bool, bool]) -> None:
    """The number of fields beyond the table's columns, and what is in them, show which are there."""
    data = np.frombuffer(line.encode(), np.uint8).copy()
    some = records_among(data, Records(np.array([0]), np.array([len(line)]), len(line)), Cut(), most=1)
    file = TableFile("s", "t", 7, "", 0, tuple(TableColumn(n, "int", False) for n in "ab"), 0)
    placed = place(some, file, UNKNOWN)
    assert isinstance(placed, FieldsOfFile) and placed.shape == RecordShape(*shape, False)


def test_the_terminator_is_told_from_the_first_record() -> None:
    """TiCDC's own is CR LF; a file whose first record ends with a bare LF was written with that."""
    for raw, terminator in ((b"a\r\nb\r\n", "\r\n"), (b"a\nb\n", "\n"), (b"a", "\r\n"), (b"\n", "\r\n")):
        assert terminator_of(np.frombuffer(raw, np.uint8), UNKNOWN) == terminator
    assert terminator_of(np.frombuffer(b"a\n", np.uint8), given_settings({"terminator": "%"})) == "%"


def test_a_line_feed_inside_a_text_is_no_terminator() -> None:
    """A file that breaks off within a text of several lines: its whole records keep their values, without a CR."""
    for raw in (b'"I",1,5\r\n"I",1,"a\nb', b'"I",1,"a\nb"\r\n', b'"I","' + b"x\n" * 50_000 + b'"\r\n'):
        assert terminator_of(np.frombuffer(raw, np.uint8), UNKNOWN) == "\r\n"


def test_a_file_beyond_what_the_kernel_can_place_is_decoded_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions have 32 bits: of half the records there is room again, and one that is too large alone is refused."""
    settings = UNKNOWN
    text, meant = made.made_file(Random(4), settings)
    whole = made.decoded(text.encode(), settings)
    large = made.encoded(["7", "x" * 9_000, "a", "x", "AA==", "-0.5"], "I", 9, False, settings)
    asked: list[tuple[int, int]] = []

    def noted(items: int, room: int) -> State:
        asked.append((items, room))
        return fresh_state(items, room)

    monkeypatch.setattr(kernel_columns, "MOST_ROOM", 9_000)
    monkeypatch.setattr(kernel_columns, "fresh_state", noted)
    rows = made.decoded((text + large + text).encode(), settings)
    assert asked and all(room < 9_000 for _, room in asked)
    refused = [row for row in rows if row["error_class"]]
    assert [(row["error_class"], row["offset"]) for row in refused] == [("too-large", len(whole))]
    found = [made.change_of(row) for row in sorted(rows, key=lambda row: row["offset"]) if not row["error_class"]]
    assert found == 2 * meant
