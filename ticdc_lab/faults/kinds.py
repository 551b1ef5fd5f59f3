"""All kinds of fault by name. A new one is a function that yields plans, and an entry here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from random import Random

from ticdc_lab.errors import ContractError
from ticdc_lab.faults import marks, rows
from ticdc_lab.faults.log import FaultLog
from ticdc_lab.faults.plan import FaultPlan, PlantedFault

KINDS: dict[str, Callable[[FaultLog], Iterator[FaultPlan]]] = {
    kind.__name__: kind
    for kind in (
        rows.row_dropped,
        rows.delete_dropped,
        rows.transaction_torn,
        rows.row_delivered_in_two_partitions,
        rows.row_in_wrong_partition,
        rows.row_moves_for_good,
        rows.partitions_swapped,
        rows.changes_swapped,
        rows.row_late,
        rows.row_repeated_late,
        rows.stale_replay,
        rows.repeat_with_other_content,
        rows.commit_ts_too_low,
        rows.commit_ts_too_high,
        rows.value_corrupted,
        rows.change_sent_as_new,
        rows.update_sent_as_insert,
        rows.key_update_unsplit,
        marks.watermark_too_high,
        marks.watermark_overtakes_rows,
        marks.watermark_falls_back,
        marks.watermark_missing,
        marks.partition_without_watermarks,
        marks.watermarks_stop,
        marks.watermark_of_another_changefeed,
        marks.ddl_missing,
        marks.ddl_changed,
        marks.ddl_repeated_with_other_text,
        marks.ddl_early,
        marks.ddl_late,
        marks.row_after_ddl,
        marks.offsets_lost,
        marks.partition_truncated,
    )
}
"""Kinds by name; what each does in reality is the first line of its function's documentation."""

UNSEEN = {
    "the last change of a row, lost": "nothing follows it that could show what it left",
    "the first change of a row, lost": "the row may have had a life before the log began",
    "changes of a row lost one after another, of which the last restores the image that the first found": (
        "what is left chains as if nothing had happened"
    ),
    "a change lost beside a DDL of its table": "the DDL may have changed images, so none are compared across it",
    "a change of a table without key, lost": "nothing tells which row a change belongs to",
    "a DDL lost in every partition": "only the partitions that hold it show that another lacks it",
    "a watermark lost in every partition": "the next one says the same and more",
    "the tail of all partitions": "a log may end anywhere",
}
"""Faults that nobody can see in a log whose offsets were counted anew, and why. No kind plants one."""

CANDIDATES = 16
"""Places of which one is taken."""


def plan_fault(log: FaultLog, kind: str, seed: int) -> PlantedFault:
    """Choose a place for a fault.

    Parameters
    ----------
    log
        What is known of the log, see :func:`ticdc_lab.faults.read_log`.
    kind
        Name from :data:`KINDS`.
    seed
        Chooses the place; equal seeds choose equal places.

    Returns
    -------
    Fault
        What to change, and what the audit must say of it. Only places where the fault shows, see :data:`UNSEEN`.

    Raises
    ------
    ContractError
        There is no such kind, or no place for it in this log.
    """
    if kind not in KINDS:
        raise ContractError(f"No such kind of fault: {kind}; there are {list(KINDS)}.", hint="Name one of these.")
    rng = Random(f"{kind}/{seed}")
    plans = list(islice(KINDS[kind](log.shuffled(rng)), CANDIDATES))
    if not plans:
        raise ContractError(
            f"The log has no place for {kind} among the {len(log.lives)} rows that were looked at.",
            hint="Look at more rows, or take a log whose rows change more often.",
        )
    return PlantedFault.of(rng.choice(plans), kind=kind, seed=seed, topic=log.topic)
