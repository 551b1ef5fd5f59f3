"""From a finding to the messages that it is about."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import events_frame
from tiny_logs import mark, row

from ticdc_lab.audit import audit, messages_of, places_of
from ticdc_lab.errors import ContractError

LOG = [row(0, 0, 10), row(0, 1, 11, key="2"), row(1, 5, 20, "update"), row(1, 6, 21, key="9"), mark(1, 7, 30)]
"""The row with key 1 moves from partition 0 to partition 1."""


def held(frame: Any) -> list[tuple[int, int, bool]]:
    """Partition, offset and whether the finding names it."""
    return [(r.partition, r.offset, r.named) for r in frame.collect()]


def test_a_finding_leads_to_its_messages(spark: Any) -> None:
    """Its own and the ones of its evidence, in order; beside them what was asked for."""
    events = events_frame(spark, LOG)
    checks = ["rows_stay_in_one_partition"]
    (finding,) = events.transform(audit, protocol="open-protocol", checks=checks).collect()
    assert places_of(finding) == ((0, 0), (1, 5))
    assert places_of(finding.asDict(recursive=True)) == ((0, 0), (1, 5))
    assert held(events.transform(messages_of, finding)) == [(0, 0, True), (1, 5, True)]
    near = [(0, 0, True), (0, 1, False), (1, 5, True), (1, 6, False)]
    assert held(events.transform(messages_of, finding, around=1)) == near


def test_a_finding_about_what_is_missing_has_no_message(spark: Any) -> None:
    """No place, no row; and a frame that is no log is refused before any job."""
    missing = {"partition": 3, "offset": None, "evidence": None}
    events = events_frame(spark, LOG)
    assert places_of(missing) == () and held(events.transform(messages_of, missing)) == []
    with pytest.raises(ContractError):
        messages_of(events.drop("seq"), missing)
