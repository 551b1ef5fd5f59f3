"""The tables behind a picture: what the page is sent of them, and the files one takes along."""

from __future__ import annotations

import io
from typing import Any

import pandas as pd
import pytest

from ticdc_lab.widgets.evidence import SHOWN, Evidence

TS = 470603993791332352
EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, Any], Any]]:
    """What the page gets."""
    found: list[tuple[dict[str, Any], Any]] = []
    monkeypatch.setattr(Evidence, "send", lambda self, content, buffers=None: found.append((content, buffers)))
    return found


@pytest.fixture
def evidence(sent: list[Any]) -> Evidence:
    """Two frames, one without rows."""
    made = Evidence()
    rows = pd.DataFrame({"commit_ts": [TS] * (SHOWN + 1), "table": EVIL, "partitions": [[0, 1]] * (SHOWN + 1)})
    made.show({"rows of a": rows, "none": rows.head(0)})
    sent.clear()
    return made


def test_empty_frames_are_left_out(evidence: Evidence) -> None:
    """What is there is said with its size."""
    assert evidence.names == [["rows of a", SHOWN + 1]]


def test_rows_are_text_and_timestamps_say_their_time(evidence: Evidence, sent: list[Any]) -> None:
    """Of a long frame the first; nothing of a log is markup."""
    evidence._hear(None, {"kind": "rows", "name": "rows of a"}, [])
    (told, _), *more = sent
    assert more == [] and told["name"] == "rows of a"
    assert told["html"].count("<small>2026-11-20 21:56:08.308 UTC</small>") == SHOWN
    assert "<img" not in told["html"] and told["html"].count('ticdc-copy"') == 1


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_files_have_all_rows(evidence: Evidence, sent: list[Any], form: str) -> None:
    """A timestamp keeps all its digits."""
    evidence._hear(None, {"kind": "file", "name": "rows of a", "form": form}, [])
    ((told, (data,)),) = sent
    read = pd.read_csv if form == "csv" else pd.read_parquet
    assert told == {"kind": "file", "name": f"rows_of_a.{form}"}
    assert list(read(io.BytesIO(data))["commit_ts"]) == [TS] * (SHOWN + 1)


def test_a_frame_that_is_gone_is_not_sent(evidence: Evidence, sent: list[Any]) -> None:
    """The page may ask while another picture comes."""
    evidence._hear(None, {"kind": "rows", "name": "gone"}, [])
    assert sent == []
