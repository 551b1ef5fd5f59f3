"""A report of a log with one planted fault of each guarantee: one drawing each, and none where none fits."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from audit_tables import audit_table
from planted_guarantees import FAULTS, PICTURES
from summaries import summary
from tiny_logs import mark, row, table_of

from ticdc_lab.answers.audit import dated, verdict
from ticdc_lab.audit import GUARANTEES
from ticdc_lab.figures import counterexample
from ticdc_lab.report.write import render


def findings(guarantee: str) -> list[dict[str, Any]]:
    """What is found of one guarantee in the log with its fault, as text of the page has it."""
    found = audit_table(table_of(FAULTS[guarantee]), protocol="open-protocol", checks=[guarantee]).to_pylist()
    return [f | {"cause": f["cause"] or f["message"]} for f in found]


def drawn(page: str) -> list[str]:
    """The titles of the section's pictures."""
    own = page[page.index('<section id="audit">') :]
    own = own[: own.index("</section>")]
    figures = re.findall(r'<script type="application/vnd\.plotly\.v1\+json">(.*?)</script>', own)
    return [json.loads(f)["layout"]["meta"]["finding"] for f in figures]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_each_guarantee_has_a_fault_that_is_found(guarantee: str) -> None:
    """Once, in this log."""
    hint = (
        "a check of rows sees only those that odd_changes (ticdc_lab/audit/history.py) picks, one of images the values "
        "that `safe` and `proof` of rule_of (ticdc_lab/audit/defined.py) do not pass"
    )
    assert [f["guarantee"] for f in findings(guarantee)] == [guarantee], hint


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_guarantee_that_only_ddl_show_needs_them(guarantee: str) -> None:
    """Else an answer would call it kept in a log without DDL, and a watch count watermarks as checked."""
    without = [e for e in FAULTS[guarantee] if e["kind"] != "ddl"]
    found = audit_table(table_of(without), protocol="open-protocol", checks=[guarantee]).num_rows
    assert GUARANTEES[guarantee].of_ddl == (not found), 'name "ddl" among what it needs'


def test_the_report_draws_each_kind_of_fault_once() -> None:
    """The count of all, then a drawing of each guarantee for which one fits."""
    every = pd.DataFrame([f for guarantee in GUARANTEES for f in findings(guarantee)])
    titles = drawn(render(replace(summary(), findings=every)))
    assert len(titles) == 1 + len(PICTURES), titles
    assert len({*titles}) == len(titles)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_drawing_is_of_its_own_finding(guarantee: str) -> None:
    """Alone in a report, a fault has its one drawing, or none where none fits: one bar would show nothing."""
    of = pd.DataFrame(findings(guarantee))
    titles = drawn(render(replace(summary(), findings=of)))
    words = of["message"].iloc[0].split(",")[0][:30]
    assert [words in title for title in titles] == [True] * (guarantee in PICTURES), titles


def test_what_is_missing_is_drawn_at_the_time_of_what_is_there() -> None:
    """The ring is below or above the message that another partition has; a drawing has no line at zero of its axes."""
    for guarantee in PICTURES:
        drawn = counterexample(findings(guarantee)[0])
        assert drawn.layout.xaxis.zeroline is False and drawn.layout.yaxis.zeroline is False
        ring = next((t for t in drawn.data if t.name == "missing"), None)
        assert (ring is not None) == guarantee.endswith("on_all_partitions")
        assert ring is None or [*ring.x] == [drawn.data[0].x[0]]
        times, axis = "".join(drawn.layout.xaxis.ticktext or []), drawn.layout.xaxis.title.text
        assert times or "commit ts" not in axis, "an axis of times has times"


def test_a_gap_has_the_times_of_its_neighbours() -> None:
    """The finding names their offsets; their messages have the time."""
    [gap] = findings("offsets_are_contiguous")
    messages = pd.DataFrame(
        [{"topic": "t", **e, "commit_ts": 470603993723437056 + i} for i, e in enumerate(gap["evidence"])]
    )
    assert all("21:56:08.049 UTC" in text for text in counterexample(dated(gap, messages)).layout.xaxis.ticktext)
    assert not any(counterexample(dated(gap, messages.iloc[:0])).layout.xaxis.ticktext)


def test_a_row_that_was_deleted_leaves_no_image() -> None:
    """A change of it afterwards: the drawing shows that the first message deletes it."""
    events = [row(0, 0, 1, v="1"), row(0, 1, 2, "delete", v="1"), row(0, 2, 3, "update", v="2"), mark(0, 3, 4)]
    found = audit_table(table_of(events), protocol="open-protocol", checks=["row_images_chain"]).to_pylist()
    texts = [a.text for a in counterexample(found[0]).layout.annotations]
    assert "deletes the row" in texts and "leaves this image" not in texts


def test_every_timestamp_of_a_finding_has_its_time() -> None:
    """In the verdict's causes, the findings and the titles; a verdict of several causes shows how many more."""
    ts = 470603993791332352
    events = [row(0, 0, ts), row(0, 1, ts - 2**20, "update", v="2"), row(1, 0, ts + 2**20, "update", v="3", key="2")]
    found = audit_table(table_of(events), protocol="open-protocol").to_pylist()
    every = pd.DataFrame([f | {"cause": f["cause"] or f["message"]} for f in found])
    told = replace(summary(), findings=pd.concat([every, every.assign(cause="another")], ignore_index=True))
    shown = re.sub(r"<script.*?</script>|<td class=.ticdc-ts.*?</td>", "", render(told), flags=re.S)
    assert shown.count(str(ts)) == shown.count(f"{ts} (2026-11-20 21:56:08.308 UTC)") > 0
    assert "; 1 more cause" in verdict(told)["why"].iloc[0]


def test_a_finding_with_a_drawing_has_room_for_its_message() -> None:
    """It has a link behind it, and is as long as one without."""
    page = render(replace(summary(), findings=pd.DataFrame(findings("row_images_chain"))))
    assert re.search(r'<td class="long">[^<]*<[^>]*>drawn above|<td class="long">(?:(?!</td>).)*drawn above', page)


def test_what_may_not_follow_is_named_by_guarantee() -> None:
    """Below a watermark no change, below a DDL no change of its table: rows of other tables may lie there."""
    notes = {
        g: counterexample(findings(g)[0]).layout.meta["note"] for g in ("nothing_below_ddl", "ddl_events_are_in_time")
    }
    assert "After a DDL at the dotted line, no change of its table may follow" in notes["nothing_below_ddl"]
    assert "After a watermark at the dotted line, no DDL may follow" in notes["ddl_events_are_in_time"]
