"""Old values that are switched within a log: where, what is judged, and what nothing decides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from audit_tables import audit_table
from tiny_logs import row, table_of

from ticdc_lab.audit.old_values import EACH, OldValues, in_blocks, old_rows_left, stretches
from ticdc_lab.facts import LogFacts
from ticdc_lab.settings import UNKNOWN, Settings
from ticdc_lab.settings.detected import OLD_VALUE, OP_BY_IMAGES
from ticdc_lab.settings.file import parse_file

CHAIN = "row_images_chain"


def log_of(form: str, *, op: str = "insert", rows: int = 2) -> list[dict[str, Any]]:
    """Lives of rows by letters, a commit_ts each: b born, u updated with an image before it, o without, d deleted."""
    log, values = [], dict[str, str]()
    for at, letter in enumerate(form):
        key, value = str(at % rows), str(at)
        of = {"b": "insert", "u": "update", "o": op, "d": "delete"}[letter]
        event = row(0, at, 10 + at, of, key=key, v=value)
        if letter in "ud":
            image = [
                c | {"value": values[key]} if c["name"] == "v" else c for c in row(0, 0, 0, key=key, v="x")["columns"]
            ]
            event |= {"before": image}
        log.append(event | ({"before": None} if letter == "o" else {}))
        values[key] = value
    return log


def found(form: str, **given: Any) -> list[tuple[str, int, bool]]:
    """Broken chains of a log: severity, commit_ts, and whether the setting is offered as a reason."""
    said = audit_table(table_of(log_of(form, **given)), protocol="open-protocol").to_pylist()
    offers = "--option open.output-old-value=false"
    return [(f["severity"], f["commit_ts"], offers in f["message"]) for f in said if f["guarantee"] == CHAIN]


@pytest.mark.parametrize("form", [
    "bb" + "o" * 10 + "u" * 10 + "o" * 10, "bb" + "u" * 10 + "o" * 10 + "u" * 10, "bbuooo", "bbooou", "bbuoouoo",
])  # fmt: skip
def test_stretches_without_old_values_are_no_faults(form: str) -> None:
    """On-off-on, off-on-off, and logs of fewer than eight rows, where nothing but the setting explains most changes."""
    assert found(form) == []


def test_a_stretch_with_old_values_is_judged_as_ever() -> None:
    """A delete that is lost among updates with images is an error, no matter what is off before and behind."""
    form = "bb" + "o" * 10 + "u" * 10
    lost = log_of(form + "uu")
    at = len(form)
    lost[at] = lost[at] | {"op": "insert", "before": None}
    said = audit_table(table_of(lost), protocol="open-protocol").to_pylist()
    assert [(f["severity"], f["commit_ts"]) for f in said if f["guarantee"] == CHAIN] == [("error", 10 + at)]


def test_few_changes_without_images_are_warnings_that_name_the_option() -> None:
    """Nothing decides between a lost delete and a switch; one beside many updates is an error."""
    assert found("bbuuo") == [("warning", 14, True)]
    assert found("bb" + "u" * 12 + "o" + "u" * 12) == [("error", 24, False)]


def test_parts_that_overlap_are_no_stretch() -> None:
    """One transaction with an update that has an image and an insert of a row that is there is a fault."""

    def each(*parts: tuple[int, int, int]) -> pa.Table:
        return pa.Table.from_pylist([dict(zip(EACH.names, p, strict=True)) for p in parts], schema=EACH)

    assert stretches(each((10, 12, 3)), each((11, 11, 9))) == ()
    (one,) = stretches(each((10, 12, 3), (30, 40, 9)), each((15, 15, 6), (14, 20, 6)))
    assert (one.first_ts, one.last_ts, one.n, one.after_ts, one.until_ts, one.sure) == (14, 20, 12, 12, 30, True)
    assert one.words == "off from commit_ts 14 to 20"


def test_blocks_hold_each_change_once() -> None:
    """No matter what the extent; none gives none."""
    ts = np.array([5, 900_000, 7, 5], dtype=np.int64)
    blocks = in_blocks(ts, (5, 900_000)).to_pylist()
    assert blocks == [{"first": 5, "last": 7, "n": 3}, {"first": 900_000, "last": 900_000, "n": 1}]
    assert in_blocks(ts[:0], (0, 0)).num_rows == 0


def test_updates_of_which_some_have_no_image_are_counted() -> None:
    """A protocol that names its updates: none is a fault, and the reason counts them."""
    facts = LogFacts.of(table_of(log_of("bbuuoou", op="update")))
    old = OldValues.read(facts, protocol="debezium", settings=UNKNOWN)
    assert old.mixed and old.unjudged(0).startswith("2 of 5 updates have no image before them")


@pytest.mark.parametrize("protocol", [*OLD_VALUE, "canal-json"])
def test_that_an_old_row_may_stay_behind_is_said(protocol: str) -> None:
    """Without old values nothing names the old row of an update that is not split; a file decides whether it is."""
    section = "cloud-storage-config" if protocol == "csv" else "kafka-config"

    def left(form: str, settings: Settings = UNKNOWN) -> str:
        facts = LogFacts.of(table_of(log_of(form, op="update")))
        return old_rows_left(facts, protocol=protocol, settings=settings)

    def given(raw: str) -> Settings:
        return parse_file(f"[sink.{section}]\n{raw}", name="c.toml").settings

    assert "--changefeed FILE decides it" in left("bbouo") and not left("bbuud")
    assert "does not split them, so the old row" in left("bboo", given("output-raw-change-event = true"))
    assert not left("bboo", given("output-raw-change-event = false"))
    assert not left("bboo", given("[filter]\nrules = ['*.*']")), "it is false where a file leaves it out"
    off = UNKNOWN.with_option(OLD_VALUE.get(protocol, "enable-old-value"), False, evidence="--option")
    assert "--changefeed FILE decides it" in left("bbdd", off), "an update may look like an insert"
    assert ("No update is in the log" in left("bb" * 4)) == (protocol in OP_BY_IMAGES) and not left("bb" * 3)
