"""What tasks keep of their findings gives the list that all of them would give."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pytest

from ticdc_lab.audit import findings
from ticdc_lab.audit.findings import FOUND, ORDER, SEVERITIES, chosen, few, listed, sentence
from ticdc_lab.engine.shuffle import spark_order

NAMES = [name for name in FOUND.names if name != "more"]


def finding(r: random.Random, row_id: int, nth: int = 0) -> dict[str, object]:
    """One about a row."""
    severity = r.choice(SEVERITIES[:2] if r.random() < 0.9 else SEVERITIES)
    return {
        "guarantee": r.choice("abc"), "severity": severity, "rank": SEVERITIES.index(severity), "topic": "t",
        "partition": r.randrange(3), "offset": r.randrange(40), "seq": 0, "commit_ts": r.choice([None, 5]),
        "message": r.choice("xy"), "row_id": row_id, "nth": nth,
    }  # fmt: skip


def shown(batches: Iterable[pa.RecordBatch], most: int) -> list[dict[str, object]]:
    """What is listed of them."""
    together = pa.Table.from_batches(list(batches), FOUND)
    (whole,) = together.take(spark_order(together, ORDER)).combine_chunks().to_batches() or [None]
    cut = () if whole is None else [whole.slice(i, 7) for i in range(0, len(whole), 7)]
    return [row for batch in listed(most, NAMES)(iter(cut)) for row in batch.to_pylist()]


@pytest.mark.parametrize("seed", range(40))
def test_the_list_is_that_of_all_findings(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No matter what tasks and batches they come in, some of them twice."""
    monkeypatch.setattr(findings, "_HELD", seed % 3)
    r = random.Random(seed)
    most, tasks = r.choice([0, 1, 2, 5, 500]), r.choice([1, 3, 7])
    of_task: list[list[pa.RecordBatch]] = [[] for _ in range(tasks)]
    for row_id in range(r.choice([0, 3, 60])):
        own = [finding(r, row_id, nth) for nth in range(r.randrange(4))]
        own += own[: r.randrange(2)]  # captures overlap
        if own:
            of_task[row_id % tasks].append(pa.RecordBatch.from_pylist(own, FOUND))
    kept = [batch for batches in of_task for batch in few(most)(iter(batches))]
    assert shown(kept, most) == shown([b for batches in of_task for b in batches], most)
    assert sum(map(len, kept)) <= tasks * 3 * (most + 1) + sum(
        row["severity"] == "info" for b in kept for row in b.to_pylist()
    )


def test_a_lost_count_would_be_seen() -> None:
    """Planted: a task that does not show how many it left out."""
    r = random.Random(1)
    batches = [pa.RecordBatch.from_pylist([finding(r, i) for i in range(50)], FOUND)]
    (kept,) = few(2)(iter(batches))
    assert shown([kept], 2) == shown(batches, 2)
    lost = kept.set_column(FOUND.get_field_index("more"), "more", pa.nulls(len(kept), pa.int64()))
    assert shown([lost], 2) != shown(batches, 2)


def test_a_sentence_may_be_text_alone() -> None:
    """One for each finding, also beside another that has columns."""
    both = np.arange(2)
    alone = sentence("a row is lost", ", or was never written")
    of_two = chosen((np.array([True, False]), alone), otherwise=sentence("row ", np.array([1, 2]), " is lost"))
    assert alone.message(both).to_pylist() == ["a row is lost, or was never written"] * 2
    assert of_two.message(both).to_pylist() == ["a row is lost, or was never written", "row 2 is lost"]
    assert alone.message(both[:0]).to_pylist() == []
