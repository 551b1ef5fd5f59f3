"""What encoders of TiCDC v8.1.0 wrote (tests/data/v8.1.0) is read as what those of today write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torture

FOLDER = Path(__file__).parents[1] / "data" / "v8.1.0"
LABELS = {"e": {"1": "a", "2": "b", "3": "c"}, "s": {"0": "", "2": "y", "5": "x,z"}}
"""Avro writes the labels of ENUM and SET."""

Image = dict[str, Any]


def rows(protocol: str, name: str) -> list[tuple[str, str, int | None, Image, Image]]:
    """Table, kind, commit_ts and both images of each row change; nothing is refused."""
    found = torture.decoded(protocol, torture.messages(name, folder=FOLDER), torture.known(name, FOLDER))
    assert [e["reason"] for e in found if e["error_class"]] == []
    images = [[{c["name"]: c["value"] for c in e[i] or ()} for i in ("columns", "before")] for e in found]
    return [(e["table_name"], e["op"], e["commit_ts"], *of) for e, of in zip(found, images, strict=True)
            if e["kind"] == "row"]  # fmt: skip


@pytest.mark.parametrize(("protocol", "name", "is_dated"), [
    ("canal-json", "canal-json", True), ("canal-json", "canal-json-plain", False), ("canal", "canal", False),
    ("simple", "simple", True),
])  # fmt: skip
def test_each_protocol_has_the_same_rows(protocol: str, name: str, is_dated: bool) -> None:
    """All 27 changes with both images; what TiDB was given is in them."""
    wanted = rows("open-protocol", "open-protocol")
    found = rows(protocol, name)
    assert [r if is_dated else (*r[:2], None, *r[3:]) for r in wanted] == found
    first = found[0][3]
    assert (first["biu"], first["fs"], first["de"]) == ("18446744073709551615", "61.2", "12345.67890")
    assert (first["tm4"], first["bt"], first["vb"]) == ("838:59:59.0000", "682", "0x00ff80e9")
    assert (found[2][3]["da"], found[2][3]["j"], found[1][3]["ts"]) == ("0000-00-00", "null", None)


def test_avro_has_the_same_rows_and_of_deletes_their_keys() -> None:
    """The key was the handle key then: also that of a table with unique keys alone."""
    of = {"allt": ("id",), "comp": ("b", "a"), "uk": ("b",)}
    wanted, found = rows("open-protocol", "open-protocol"), rows("avro", "avro")
    for (table, op, ts, after, before), there in zip(wanted, found, strict=True):
        labelled = {c: LABELS.get(c, {}).get(v, v) for c, v in after.items()}
        deleted = {c: v for c, v in before.items() if c in of[table]} if op == "delete" else {}
        assert there == (table, op, ts if op != "delete" else None, labelled, deleted)
