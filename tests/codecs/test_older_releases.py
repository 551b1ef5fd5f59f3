"""What encoders of TiCDC v6.5.0 and v8.1.0 wrote (tests/data) is read as what the ones of today write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torture

from ticdc_lab.facts.definitions import avro_name

FOLDER = Path(__file__).parents[1] / "data" / "v8.1.0"
OLDER = FOLDER.parent / "v6.5.0"
LABELS = {"e": {"1": "a", "2": "b", "3": "c"}, "s": {"0": "", "2": "y", "5": "x,z"}}
"""Avro writes the labels of ENUM and SET."""

Image = dict[str, Any]


def rows(protocol: str, name: str, folder: Path = FOLDER) -> list[tuple[str, str, int | None, Image, Image]]:
    """Table, kind, commit_ts and both images of each row change; nothing is refused."""
    found = torture.decoded(protocol, torture.messages(name, folder=folder), torture.known(name, folder))
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
    """The key was the handle key then: also the one of a table with unique keys alone."""
    of = {"allt": ("id",), "comp": ("b", "a"), "uk": ("b",)}
    wanted, found = rows("open-protocol", "open-protocol"), rows("avro", "avro")
    for (table, op, ts, after, before), there in zip(wanted, found, strict=True):
        labelled = {c: LABELS.get(c, {}).get(v, v) for c, v in after.items()}
        deleted = {c: v for c, v in before.items() if c in of[table]} if op == "delete" else {}
        assert there == (table, op, ts if op != "delete" else None, labelled, deleted)


@pytest.mark.parametrize(
    ("protocol", "name"), [("canal-json", "canal-json"), ("canal-json", "canal-json-plain"), ("canal", "canal")]
)
def test_v650_has_the_same_rows_in_each_protocol(protocol: str, name: str) -> None:
    """All 56 changes; commit_ts where the protocol has one."""
    wanted, found = rows("open-protocol", "open-protocol", OLDER), rows(protocol, name, OLDER)
    assert len(wanted) == 56
    for one, other in zip(wanted, found, strict=True):
        assert (one[:2], one[3:]) == (other[:2], other[3:]) and other[2] == (one[2] if name == "canal-json" else None)
    images = {(table, after.get("id", after.get("id-1"))): after for table, op, _, after, _ in wanted if op == "insert"}
    assert images["ints", "1"]["bu"] == "18446744073709551615" and images["ints", "1"]["iu"] == "4294967295"
    assert images["floats", "2"]["dcu"] == "9" * 35 + "." + "9" * 30 and images["floats", "1"]["f"] == "61.2"
    assert images["texts", "a"]["v"] == "b\b ff n\n r\r t\t q\" s' bs\\ <&> u2028 \0"
    assert images["times", "18446744073709551615"]["t"] == "-838:59:59" and images["gen", "1"] == {
        "id": "1",
        "v": "5",
        "sg": "7",
    }


def test_v650s_avro_has_the_values_after_each_change() -> None:
    """It refused two rows with an ENUM of number 0; labels represent numbers."""
    wanted = {r[2]: r for r in rows("open-protocol", "open-protocol", OLDER) if r[1] != "delete"}
    found = [r for r in rows("avro", "avro", OLDER) if r[1] != "delete"]
    of = {"e": {"0": "", "1": "a", "2": "b", "3": "c,d"}, "st": {"0": "", "1": "x", "4": "z", "5": "x,z"}}
    assert len(found) == len(wanted) - 2
    for table, op, ts, after, _ in found:
        one = wanted[ts]
        labelled = {avro_name(c): of.get(c, {}).get(v, v) for c, v in one[3].items()}
        assert (avro_name(one[0]), one[1], labelled) == (table, op, after)
