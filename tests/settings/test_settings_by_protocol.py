"""The docs' table of settings by protocol: a cell that promises something has a test, and the others have none."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from conftest import ROOT
from test_detected import KEY, ROW, events, shown
from tiny_logs import table_of

from ticdc_lab.audit.old_values import OldValues, in_blocks, stretches
from ticdc_lab.facts import LogFacts
from ticdc_lab.settings import Settings
from ticdc_lab.settings.detected import LARGE, OLD_VALUE, SWITCHED, of_messages, of_watermarks
from ticdc_lab.settings.file import is_setting

Check = Callable[[str], None]

PAGE = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
HEAD, _, *LINES = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.split("## Settings by protocol")[1].split("\n## ")[0].splitlines()
    if line.startswith("|")
]
CELLS = {(line[0], protocol): cell for line in LINES for protocol, cell in zip(HEAD[1:], line[1:], strict=True)}


def old_values_off(protocol: str) -> None:
    """No update has an image before it."""
    found = shown(events(*[("update", ROW, None)] * 2), protocol=protocol)
    assert found.value(OLD_VALUE[protocol]) is False


def old_values_switched(protocol: str) -> None:
    """Some updates have one; of open-protocol the others are inserts of rows that are there."""
    if protocol == "open-protocol":
        updates, inserts = (
            pa.Table.from_batches([in_blocks(np.array(ts), (1, 99))]) for ts in ([1, 90], [*range(20, 40)])
        )
        where = stretches(updates, inserts)
        old = OldValues.read(LogFacts.of(table_of([])), protocol=protocol, settings=Settings(), stretches=where)
        assert "switched off from commit_ts 20 to 39" in old.switched
        return
    found = shown(events(("update", ROW, None), ("update", ROW, ROW)), protocol=protocol)
    assert found.value(OLD_VALUE[protocol]) == SWITCHED


def only_updated(protocol: str) -> None:
    """An image before names fewer columns than the one after it."""
    assert shown(events(("update", ROW, KEY)), protocol=protocol).value("only-output-updated-columns") is True


def deletes_by_key(protocol: str) -> None:
    """Deletes have their key alone, while inserts have more."""
    found = shown(events(("insert", ROW, None), ("delete", None, KEY)), protocol=protocol)
    assert found.value("delete-only-output-handle-key-columns") is True


def with_start_ts(protocol: str) -> None:
    """The source block has it."""
    found = shown(events(("insert", ROW, None), start_ts=7), protocol=protocol)
    assert found.value("debezium.include-start-ts") is True


def with_row_key(protocol: str) -> None:
    """`_tidb.rowkey` is in the messages."""
    value = json.dumps({"_tidb": {"commitTs": 1, "rowkey": b64encode(b"t").decode()}}).encode()
    messages = pa.table({"key": pa.array([None], pa.binary()), "value": [value]})
    assert Settings(of_messages(messages, protocol=protocol)).value("output-row-key") is True


def with_watermarks(protocol: str) -> None:
    """The log has watermarks, or DDL."""
    assert Settings(of_watermarks(0, 1, protocol=protocol)).value("avro-enable-watermark") is True
    assert not of_watermarks(0, 0, protocol=protocol) and not of_watermarks(3, 1, protocol="simple")


def packed(protocol: str) -> None:
    """Messages begin with the magic of lz4."""
    raw, plain = (pa.table({"key": pa.array([None], pa.binary()), "value": [v]}) for v in (b"\x04\x22\x4d\x18.", b"{}"))
    found = Settings(of_messages(raw, protocol=protocol, unpacked=plain))
    assert found.value(f"{LARGE}large-message-handle-compression") == "lz4"


TORTURED = "tests/codecs/test_torture.py::test_each_cell_is_what_tidb_wrote"  # its tables have virtual columns
FILTERS = "tests/audit/test_filtered.py::test_a_filter_explains_what_it_may_leave_out_and_nothing_else"
ROUTED = "tests/dispatch/test_routing.py::test_partitions_of_a_routed_log_are_those_of_the_names_upstream"
ZONES = "tests/tables/test_checksum_zones.py::test_one_zone_that_explains_every_row_is_said_once"

HELD: dict[str, Check | str | dict[str, Check | str]] = {
    "old values off": old_values_off,
    "old values switched within the log": old_values_switched,
    "`only-output-updated-columns`": only_updated,
    "`delete-only-output-handle-key-columns`": {
        "open-protocol": deletes_by_key, "canal-json": deletes_by_key,
        "csv": "tests/dispatch/test_changefeed.py::test_what_ticdc_refuses_is_refused",
    },
    "column selectors, virtual columns": {
        **dict.fromkeys(("open-protocol", "canal-json", "simple", "debezium", "avro"), TORTURED),
        "csv": "tests/codecs/test_csv_fields.py::test_where_two_readings_fit_none_is_taken_but_for_an_option",
    },
    "event filters": FILTERS,
    "table routing": ROUTED,
    "time zone of the server": {
        **dict.fromkeys(("simple", "avro"), ZONES),
        "debezium": "tests/dispatch/test_zones.py::test_one_zone_that_explains_the_partitions_is_a_setting",
    },
    "`include-start-ts`": with_start_ts,
    "`output-row-key`": with_row_key,
    "`avro-enable-watermark`": with_watermarks,
    "binary encoding": {
        "debezium": "tests/codecs/test_torture.py::test_bytes_of_debezium_are_base64_or_hex",
        "csv": "tests/codecs/test_csv_fields.py::test_a_guess_between_hex_and_base64_is_said",
    },
    "compression, large messages": packed,
}  # fmt: skip
"""What holds the cells of a row: a check, or a test elsewhere; by protocol where they differ."""


@pytest.mark.parametrize(("kind", "protocol"), [key for key, cell in CELLS.items() if cell != "–"])
def test_what_a_cell_promises_is_tested(kind: str, protocol: str) -> None:
    """A new row, or one for another protocol, has no test until it is written."""
    held = HELD[kind]
    check = held[protocol] if isinstance(held, dict) else held
    if callable(check):
        check(protocol)
    else:
        file, _, name = check.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")


def test_every_row_has_cells_for_all_protocols() -> None:
    """And none is empty: it is there, cannot be, or is refused; what represents no row is no longer here."""
    assert {kind for kind, _ in CELLS} == set(HELD) and len(HEAD) == 7
    assert {re.split(r"[ ,]", cell)[0] for cell in CELLS.values()} == {"✔", "–", "option", "refused", "compression"}
    for kind, held in HELD.items():
        there = {protocol for (k, protocol), cell in CELLS.items() if k == kind and cell != "–"}
        assert not isinstance(held, dict) or set(held) == there, kind
    only = {(kind, p) for (kind, p), cell in CELLS.items() if cell.startswith("option")}
    assert {kind for kind, _ in only} == {"event filters", "table routing", "time zone of the server"}
    for name in ("filter.event-filters", "sink.dispatchers.target-table", "time-zone"):
        assert is_setting(name)
